"""The page and its API: nothing outside the index is shown, what people wrote is escaped, the present state counts."""

import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

from aladin.gallery import draw_picture, take_in
from aladin.search.site import QUERY, Site, make_site
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.explain import Word
from mjp.aladin.search.local import LocalGallery
from mjp.aladin.search.searcher import PictureSearch
from mjp.aladin.search.web import files
from mjp.aladin.search.web.parameters import MAX_QUERY, Defaults
from mjp.common.errors import InputError


@pytest.fixture(scope="module")
def site(model: Aladin, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    Image.new("RGB", (8, 8), "red").save(folder / "secret.png")
    return make_site(folder, model)


def test_thumbnails_are_known_by_id(site: Site) -> None:
    answer = site.get(f"/thumb/{site.id()}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/jpeg")
    assert Image.open(BytesIO(answer.content)).size == (320, 267)
    assert Image.open(BytesIO(site.get(f"/large/{site.id()}").content)).size == (384, 320)  # eightfold, not 1600


def test_a_browser_that_has_a_picture_is_not_sent_it_again(site: Site) -> None:
    first = site.get(f"/thumb/{site.id()}")
    assert "max-age=86400" in first.headers["Cache-Control"]
    again = site.get(f"/thumb/{site.id()}", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert site.get(f"/large/{site.id()}").headers["ETag"] != first.headers["ETag"]
    assert site.get("/?q=sky").headers["Cache-Control"] == "private, no-cache"
    address = site.page("sky").split('rel="stylesheet" href="')[1].split('"')[0]
    assert "immutable" in site.get(address).headers["Cache-Control"]


def test_the_original_is_the_file(site: Site) -> None:
    answer = site.get(f"/original/{site.id('a/01.png')}")
    assert answer.content == (site.folder / "pictures/a/01.png").read_bytes()
    assert answer.headers["Content-Type"] == "image/png"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "address",
    [
        *("/thumb/../secret.png", "/thumb/..%2Fsecret.png", "/thumb/%2Fetc%2Fpasswd", "/thumb//etc/passwd", "/thumb/"),
        *("/thumb/secret.png", "/../secret.png", "/secret.png", "/page.css/../page.html", "/templates/base.html"),
        *(
            "/original/..%2F..%2Fsecret.png",
            "/original/%2Fetc%2Fpasswd",
            "/large/secret.png",
            "/api/pictures/secret.png",
        ),
        *("/thumb/' OR '1'='1", "/thumb/%00", "/why/../secret.png?q=a", "/why/x?q=a", "/why/", "/index.json"),
        "/thumb/" + "a" * 9999,
    ],
)
def test_nothing_but_the_index_is_shown(site: Site, address: str) -> None:
    assert site.get(address).status_code == 404


@pytest.mark.parametrize("word", ["-1", "99", "x", "²", "1.5", "9" * 5000])
def test_words_that_are_not_there(site: Site, word: str) -> None:
    assert site.get(f"/why/{site.id()}?q=red+sky&word={quote(word)}").status_code == 404


def test_queries_without_a_word_get_a_sentence(site: Site) -> None:
    assert "contains no word" in site.page("?!")
    assert site.get(f"/why/{site.id()}?q=%3F%21").status_code == 404
    assert site.get(f"/picture/{site.id()}?q=%3F%21").status_code == 200


def test_what_people_wrote_is_escaped(site: Site) -> None:
    for page in (site.page(QUERY), site.get(f"/picture/{site.id()}?q={quote(QUERY)}").text):
        assert "<b>green" not in page
        assert "<img src=x" not in page
        assert "&lt;img src=x" in page
    attack = '"><script>alert(1)</script>'
    for name in ("q", "like", "folder", "since", "until", "added_since", "sort"):
        assert "<script>" not in site.get(f"/?q=sky&{name}={quote(attack)}").text


def test_the_better_list_comes_first_and_says_how_many_were_re_ranked(site: Site) -> None:
    page = site.page("sky")
    assert page.index("Best matches") < page.index("By vector")
    assert "The 8 nearest, sorted by" in page
    assert "The 8 nearest, sorted by" in replace(site, defaults=Defaults(5, 99)).page("sky")  # there are no more
    plain = replace(site, defaults=Defaults(5, 0)).page("sky")
    assert "By vector" in plain
    assert "Best matches" not in plain


def test_the_page_says_when_it_has_not_read_all_of_a_query(site: Site) -> None:
    def cut(query: str) -> bool:
        return "not read" in site.page(query)

    assert not cut("red sky")
    assert not cut("")
    assert not cut("?!")
    assert cut("red sky " * 60)  # more words than the model reads
    assert cut("sky" + "!" * MAX_QUERY)
    assert "not read" in site.get(f"/api/search?q=sky{'!' * MAX_QUERY}").json()["notes"][0]
    assert site.get("/api/search?q=sky").json()["notes"] == []


def test_pages_go_through_all_matches_once(site: Site) -> None:
    first, second = site.page("sky"), site.page("sky", "&page=2")
    assert "1–5 of 8" in first
    assert "6–8 of 8" in second
    assert "page=2" in first
    assert "page=3" not in second
    ids = [match["id"] for page in (1, 2) for match in site.get(f"/api/search?q=sky&page={page}").json()["matches"]]
    assert len(set(ids)) == len(ids) == 8
    beyond = site.page("sky", "&page=9")
    assert "beyond the last of 8 matches" in beyond
    assert 'href="/?q=sky">To the first page' in beyond


def test_words_that_name_nothing_get_no_map(site: Site) -> None:
    page = site.get(f"/picture/{site.id()}?q=the+sky").text
    assert "matches the word sky" in page
    assert "matches the word the" not in page
    assert "Words that name nothing add to the score too: the " in page
    assert 'word=1"' in page  # maps are numbered by the place of their word in the query


def test_similar_pictures_start_with_the_picture_itself(site: Site) -> None:
    matches = site.get(f"/api/search?like={site.id()}").json()["matches"]
    assert matches[0]["id"] == site.id()
    assert matches[0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert matches[0]["alignment"] is None
    assert "similar to &lt;img" in site.get(f"/?like={site.id()}").text
    assert "contains no picture with the id" in site.get("/?like=nothing").text


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/api/search", "search with a query"),
        ("/api/search?q=sky&k=0", "k must be a whole number from 1 to 100,"),
        ("/api/search?q=sky&k=9999999999", "k must be"),
        ("/api/search?q=sky&page=-1", "page must be"),
        ("/api/search?q=sky&sort=name", "sort must be score or date"),
        ("/api/search?q=sky&since=yesterday", "since 'yesterday' is not a date"),
        ("/api/search?q=sky&added_since=x", "added_since 'x' is not a date"),
        ("/api/search?q=-+sky", "something to look for"),
        ("/api/search?q=%3F", "contains no word"),
    ],
)
def test_a_bad_question_gets_a_sentence(site: Site, address: str, sentence: str) -> None:
    answer = site.get(address)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]
    assert "--" not in answer.json()["error"]  # an address has no options


def test_the_api_agrees_with_the_search(site: Site) -> None:
    answer = site.get("/api/search?q=red+sky&k=3").json()
    matches = site.searcher.search("red sky", k=3, rerank=8)
    assert [match["id"] for match in answer["matches"]] == [match.id for match in matches]
    assert [match["alignment"] for match in answer["matches"]] == pytest.approx([match.alignment for match in matches])
    assert answer["total"] == 8
    words = site.get(f"/api/pictures/{matches[0].id}/explain?q=red+sky").json()["words"]
    assert sum(word["score"] for word in words) == pytest.approx(matches[0].alignment, abs=1e-5)
    assert site.get(f"/api/pictures/{matches[0].id}").json()["paths"] == [str(matches[0].paths[0])]
    assert site.get("/api/status").json()["pictures"] == 8
    assert site.get("/api/nothing").json() == {"error": "Not found."}


def test_programs_can_open_the_paths_of_any_name(model: Aladin, tmp_path: Path) -> None:
    for number, name in enumerate(("new\nline.png", "3.04\u202fPM.png", "tab\t.png")):
        draw_picture(tmp_path / "pictures" / name, number)
    take_in(tmp_path / "pictures", tmp_path / "index", model)
    site = Site(tmp_path, PictureSearch(tmp_path / "index", model), Defaults())
    matches = site.get("/api/search?q=sky").json()["matches"]
    assert len(matches) == 3
    for match in matches:
        assert Path(match["paths"][0]).is_file()
        entry = site.get(f"/api/pictures/{match['id']}").json()
        assert entry == {name: match[name] for name in ("id", "paths", "date")}


def test_a_folder_limits_the_search_and_is_never_opened(site: Site) -> None:
    folder = str((site.folder / "pictures" / "a").resolve())
    answer = site.get(f"/api/search?q=sky&k=20&folder={quote(folder)}").json()
    assert answer["total"] == 3
    assert all(match["paths"][0].startswith(folder) for match in answer["matches"])
    for other in ("/nowhere", f"{folder}/../b", "pictures/a", "/etc", folder + "\0"):
        assert not site.get(f"/api/search?q=sky&folder={quote(other)}").json().get("total")
    assert "No picture passes these filters" in site.page("sky", "&folder=/nowhere")


def test_an_explanation_is_computed_once_for_all_its_pictures(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    explain = type(site.searcher).explain

    def counted(self: object, text: str, picture: str, **settings: object) -> list[Word] | None:
        calls.append(text)
        return explain(self, text, picture, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(type(site.searcher), "explain", counted)
    client = site.client
    for address in (
        "/picture/{}?q=red+sky",
        "/why/{}?q=red+sky",
        "/why/{}?q=red+sky&word=0",
        "/why/{}?q=red+sky&word=1",
    ):
        assert client.get(address.format(site.id())).status_code == 200
    assert calls == ["red sky"]


def test_a_picture_that_has_gone_says_so_and_the_rest_stays(model: Aladin, tmp_path: Path) -> None:
    moved = make_site(tmp_path, model, count=3)
    picture = moved.id("b/02.png")
    shutil.rmtree(tmp_path / "pictures" / "b")
    for address in ("thumb", "large", "original"):
        assert moved.get(f"/{address}/{picture}").status_code == 404
    assert moved.page("sky").count("The file is gone") == 4  # two pictures in two columns
    assert "The file is gone" in moved.get(f"/picture/{picture}?q=sky").text
    Index(tmp_path / "index").delete(ids=[picture])
    assert picture not in moved.page("sky")  # it looks at the index anew
    assert moved.get(f"/picture/{picture}?q=sky").status_code == 404


def test_an_index_of_another_model_is_refused_when_it_comes_later(model: Aladin, tmp_path: Path) -> None:
    site = make_site(tmp_path, model, count=1)
    addresses = ("/", "/?q=sky", f"/thumb/{site.id()}", f"/why/{site.id()}?q=sky", "/api/search?q=sky")
    assert all(site.get(address).status_code == 200 for address in addresses)
    text = (tmp_path / "index" / "index.json").read_text()
    (tmp_path / "index" / "index.json").write_text(text.replace(model.hash, "0" * 16))
    for address in addresses:
        answer = site.get(address)
        assert answer.status_code >= 400
        assert "another model" in answer.text
    with pytest.raises(InputError, match="another model"):
        type(site.searcher)(tmp_path / "index", model)


def test_pictures_beyond_the_pixel_limit_are_not_shown(model: Aladin, tmp_path: Path) -> None:
    site = make_site(tmp_path, model, count=0)
    for limit, status in ((48 * 40, 200), (48 * 40 - 1, 404)):
        limited = replace(site, searcher=type(site.searcher)(tmp_path / "index", model, max_pixels=limit))
        assert limited.get(f"/thumb/{site.id()}").status_code == status
        assert limited.get(f"/why/{site.id()}?q=sky").status_code == status
        assert limited.get(f"/picture/{site.id()}?q=sky").status_code == 200


def test_vectors_stay_mapped_until_the_index_changes(model: Aladin, tmp_path: Path) -> None:
    searcher = make_site(tmp_path, model, count=2).searcher
    gallery = searcher.gallery
    assert isinstance(gallery, LocalGallery)
    index, mapped = gallery.index, gallery.index.chunks
    first = searcher.search("sky", k=1)[0]
    assert gallery.index is index
    assert gallery.index.chunks is mapped
    Index(tmp_path / "index").delete(ids=[first.id])
    assert gallery.index.chunks is not mapped
    assert len(searcher) == 2
    assert searcher.entry(first.id) is None


def test_files_that_browsers_do_not_show_are_downloads(model: Aladin, tmp_path: Path) -> None:
    assert ".tiff" not in files.TYPES
    site = make_site(tmp_path, model, count=0)
    (path,) = (tmp_path / "pictures").iterdir()
    Image.open(path).save(tmp_path / "pictures" / "scan.tiff")
    from aladin.gallery import take_in

    take_in(tmp_path / "pictures", tmp_path / "index", model)
    answer = site.get(f"/original/{site.id('scan.tiff')}")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="picture.tiff"'
