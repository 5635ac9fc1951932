"""Published figures agree with themselves where one figure stands in two tables, and what is said of them is so."""

from mjp.report.published import JIGSAW, POSITIONS, ROBUSTNESS, TRAINING_RATIOS, VARIANTS


def test_every_row_fills_its_columns() -> None:
    for table in (JIGSAW, VARIANTS, TRAINING_RATIOS, POSITIONS, ROBUSTNESS):
        assert all(len(row) == len(table.columns) for row in table.rows.values())


def test_the_same_model_has_the_same_figures_everywhere() -> None:
    assert VARIANTS.rows["A: DeiT-S"] == JIGSAW.rows["DeiT-S"][:2]
    assert VARIANTS.rows["J: G + DAL (NLN) = MJP"] == JIGSAW.rows["DeiT-S + MJP"][:2]
    assert TRAINING_RATIOS.rows["γ = 0.03"] == JIGSAW.rows["DeiT-S + MJP"]


def test_the_variants_lie_as_close_as_the_page_says() -> None:
    top1 = [float(row[0]) for name, row in VARIANTS.rows.items() if name[0] in "DFGHIJ"]
    assert len(top1) == 6
    assert round(max(top1) - min(top1), 1) == 0.6
