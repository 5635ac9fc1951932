"""Published figures agree with themselves where one figure stands in two tables, and what is said of them is so."""

from mjp.report.published import CORRUPTIONS, JIGSAW, POSITIONS, ROBUSTNESS, SEGMENTATION, TRAINING_RATIOS, VARIANTS


def test_every_row_fills_its_columns() -> None:
    for table in (JIGSAW, VARIANTS, TRAINING_RATIOS, POSITIONS, ROBUSTNESS, CORRUPTIONS, SEGMENTATION):
        assert all(len(row) == len(table.columns) for row in table.rows.values())


def test_the_same_model_has_the_same_figures_everywhere() -> None:
    assert VARIANTS.rows["A: DeiT-S"] == JIGSAW.rows["DeiT-S"][:2]
    assert VARIANTS.rows["J: G + DAL (NLN) = MJP"] == JIGSAW.rows["DeiT-S + MJP"][:2]
    assert TRAINING_RATIOS.rows["γ = 0.03"] == JIGSAW.rows["DeiT-S + MJP"]


def test_the_variants_lie_as_close_as_the_page_says() -> None:
    top1 = [float(row[0]) for name, row in VARIANTS.rows.items() if name[0] in "DFGHIJ"]
    assert len(top1) == 6
    assert round(max(top1) - min(top1), 1) == 0.6


def test_the_means_of_table_4_are_as_odd_as_the_page_says() -> None:
    means = {name: sum(map(float, row[:10])) / 10 for name, row in CORRUPTIONS.rows.items()}
    assert round(means["DeiT-S"], 2) == float(CORRUPTIONS.rows["DeiT-S"][10]) == 44.0
    assert round(means["DeiT-S + MJP"], 2) == 43.24 != float(CORRUPTIONS.rows["DeiT-S + MJP"][10])


def test_every_figure_of_the_position_study_has_its_deviation() -> None:
    assert all("±" in figure for row in POSITIONS.rows.values() for figure in row)
