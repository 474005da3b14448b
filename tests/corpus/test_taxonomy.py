"""Category paths, taxonomy files, mapping; folders of texts; sentences (PRETRAIN-1)."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from encodeonce.corpus import format_of, read
from encodeonce.corpus.taxonomy import (
    Taxonomy,
    map_categories,
    map_category,
    names_of,
    path_of,
    read_codes,
    read_taxonomy,
    spelled,
)
from encodeonce.corpus.text import sentences, with_sentences
from encodeonce.errors import DataError
from encodeonce.types import Document

PATHS = [("a", "x"), ("b", "x"), ("a",), (), ("a", "y")]


def test_classes_are_whole_paths_and_missing_levels_are_the_null_class() -> None:
    taxonomy = Taxonomy.of(PATHS)
    assert taxonomy.n_classes == (3, 4)
    assert taxonomy.labels(PATHS).tolist() == [[1, 1], [2, 3], [1, 0], [0, 0], [1, 2]]
    second = taxonomy.statistics(PATHS)[1]
    assert second == {"level": 2, "classes": 3, "documents": 3, "used": 3, "largest": 1}
    with pytest.raises(DataError, match="'a > z' is not in this taxonomy of 2 levels"):
        taxonomy.labels([("a", "z")])
    with pytest.raises(DataError, match=r"all of 2 documents have an empty category path.* objective = 'triplet'"):
        Taxonomy.of([(), ()])


def test_metadata_as_lists_and_as_strings() -> None:
    document = Document("d", meta={"p": "A > B", "q": ["A", "B"], "c": "x|y|x", "n": None, "bad": 3}, place="f:1")
    assert path_of(document, "p") == path_of(document, "q") == ("A", "B")
    assert (names_of(document, "c"), names_of(document, "n"), path_of(document, "absent")) == (("x", "y"), (), ())
    with pytest.raises(DataError, match="f:1: 'bad' is 3; it must be a list of names"):
        path_of(document, "bad")


def test_the_published_map_has_as_many_paths_as_names_at_every_level(shared: Path) -> None:
    """Spec A6: 17, 54, 123, 186, 152, 44, 8 classes without null; the start loss of three documents is 83.95."""
    paths = read_taxonomy(shared / "data/docs/taxonomies/fastdoc_product_hierarchy.json")
    taxonomy = Taxonomy.of(paths)
    assert taxonomy.n_classes == (18, 55, 124, 187, 153, 45, 9)
    assert 3 * np.log(taxonomy.n_classes).sum() == pytest.approx(83.95, abs=0.01)


def test_taxonomy_files_of_each_form(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data/docs/taxonomies"
    google, arxiv = (
        read_taxonomy(folder / "google_product_taxonomy.txt"),
        read_taxonomy(folder / "arxiv_categories.tsv"),
    )
    assert len(google) == 5595
    assert Taxonomy.of(google).n_classes[0] == 22
    assert ("Computer Science", "Computer Science", "Robotics") in arxiv
    eurovoc = read_taxonomy(folder / "eurovoc_observed.tsv")
    assert max(map(len, eurovoc)) > 1
    assert {("TRADE", "trade policy"), ("TRADE", "trade policy", "award of contract")} <= set(eurovoc)
    codes = read_codes(folder / "arxiv_categories.tsv")
    assert codes["cs.RO"] == ("Computer Science", "Computer Science", "Robotics")
    assert set(codes.values()) == set(arxiv)
    assert read_codes(folder / "eurovoc_observed.tsv")["04"] == ("POLITICS",)
    published = read_codes(folder / "fastdoc_product_hierarchy.json")
    assert published["air compressor"][0] == "Sporting Goods"
    assert read_codes(folder / "google_product_taxonomy.txt") == {}
    with pytest.raises(DataError, match=r"level_1, level_2, .* without parents"):
        read_taxonomy(folder / "eurovoc_levels_multi_eurlex.json.gz")
    (tmp_path / "g.txt.gz").write_bytes(gzip.compress(b"# v1\n12 - A\n13 - A > B\n"))
    assert read_taxonomy(tmp_path / "g.txt.gz") == [("A",), ("A", "B")]
    assert read_codes(tmp_path / "g.txt.gz") == {"12": ("A",), "13": ("A", "B")}
    for name, text, message in (
        ("e.txt", "# only a comment\n", "no path"),
        ("d.jsonl", '{"text": "a"}\n', r"d.jsonl: no taxonomy is read from a .jsonl file. There is: .txt"),
        ("c.csv", "code,label,parent\n1,A,\n", "no taxonomy is read from a .csv file"),
        ("j.json", json.dumps({"a": "b"}), "'a' is no list"),
        ("b.json", '{"a":\n [', r"b.json:2:3: bad JSON"),
        ("s.tsv", "code\tlabel\tparent\n1\tA\t\n2\tB\n", r"s.tsv:3: fewer values"),
        (
            "l.tsv",
            "code\tlabel\tparent\n1\tA\t\n\n2\tB\t1\tC\n",
            r"l.tsv:4: more values than the header has columns, 3",
        ),
        ("m.tsv", "1\tA\t\n2\tB\t1\tC\n", r"m.tsv:2: more values"),
        ("n.txt", "A > B\n7 - A > > B\n", r"n.txt:2: '7 - A > > B' has a node without a name"),
        (
            "p.tsv",
            "code\tlabel\tparent\n1\tA\t\n\n0002\tB\t1\n3\tC\t2\n",
            r"p.tsv:5: '3' has the parent '2', and no row has this code",
        ),
        (
            "r.tsv",
            "code\tlabel\tparent\n1\tA\t\n2\tB\t4\n3\tC\t2\n4\tD\t3\n",
            r"r.tsv:3: '2' has no root: its parents are '4', '3', '2', which go round",
        ),
        ("o.tsv", "code\tlabel\tparent\n1\tA\t1\n", r"o.tsv:2: '1' has no root: its parents are '1', which"),
        ("t.tsv", "x\ty\n1\t2\n", "it needs group, archive, name"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_taxonomy(tmp_path / name)


def test_a_category_goes_to_its_name_or_to_the_nearest_last_two_nodes() -> None:
    vectors = {"gas": [1.0, 0, 0], "grill": [0, 1.0, 0], "ovens": [0.2, 1.0, 0], "toys": [0, 0, 1.0], "fuel": [1, 0, 0]}
    embed = {word: np.array(vector) for word, vector in vectors.items()}
    leaves = [("Home", "Toys"), ("Home", "Fuel", "Ovens"), ("Home", "Gas-Grill")]
    exact = map_category("GAS grill", leaves, embed)
    assert (exact.leaf, exact.exact) == (leaves[2], True)
    near = map_category("grill unknownword", leaves[:2], embed)
    query, target = embed["grill"], (embed["fuel"] + embed["ovens"]) / 2
    assert near.leaf == leaves[1]
    assert near.cosine == pytest.approx(float(query @ target / np.linalg.norm(target)))
    assert map_category("grill", leaves[:2], embed, min_cos=0.99).leaf == ()
    assert map_category("nothing", leaves[:2], embed).leaf == ()
    assert map_category("grill", [("B", "Ovens"), ("A", "Ovens")], embed).leaf == ("B", "Ovens"), (
        "ties: the earlier leaf"
    )
    several = map_categories(["nothing", "GAS grill", "grill", "grill"], leaves, embed)
    assert several == [map_category(name, leaves, embed) for name in ("nothing", "GAS grill", "grill", "grill")]
    assert map_category("gas grill", leaves, lambda text: np.array([len(text), 1.0])).exact


@pytest.mark.parametrize("others", [("B12", "Windows 10", "1984"), ("B-12", "Windows  10", "1984", "C++", "#")])
def test_names_that_differ_in_digits_or_signs_are_different_names(others: tuple[str, ...]) -> None:
    """Each leaf's path and name lead to it alone, and a name that is no leaf's to none."""
    leaves = [("Top", name) for name in ("B6", "Windows 11", "9999", "C", *others)]
    for leaf in leaves:
        for name in (" > ".join(leaf), leaf[1], leaf[1].lower()):
            assert map_category(name, leaves, {}).leaf == leaf, name
    for name in ("Windows 12", "B7", "2001", "C#", "", " > ", "Top > "):
        assert map_category(name, leaves, lambda text: np.ones(2) if not text else None).leaf == (), name


def test_a_category_may_be_a_whole_path_or_a_code(shared: Path) -> None:
    """Each document of the arXiv set names its category by code and by path: both lead to the same leaf, unembedded."""
    folder = shared / "data/docs"
    leaves, codes = (read(folder / "taxonomies/arxiv_categories.tsv") for read in (read_taxonomy, read_codes))
    with gzip.open(folder / "arxiv/docs.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    due = {row["primary_category"]: tuple(row["category_path"]) for row in rows}
    assert len(due) > 100
    by_code = map_categories(list(due), leaves, {}, codes=codes)
    assert {one.category: one.leaf for one in by_code} == due
    by_path = map_categories([" > ".join(path) for path in due.values()], leaves, {})
    assert [one.leaf for one in by_path] == list(due.values())
    several = [("Toys", "Accessories"), ("Cameras", "Accessories"), ("Cameras", "Accessories", "Bags")]
    assert map_category("Photo > Cameras > accessories", several, {}).leaf == several[1]
    assert map_category("accessories", several, {}).leaf == several[0], "of equal ones the earlier"
    assert map_category("Toys > Bags", several, {}).leaf == several[2]


def test_a_folder_of_texts_is_documents_with_its_folders_as_path(tmp_path: Path) -> None:
    for name, text in (
        ("tv/oled/a.txt", "\ufeffOne. Two."),
        ("tv/b.MD", "Three."),
        ("c.txt", ""),
        ("tv/x.pdf", "no text"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    documents = read(tmp_path)
    assert [(d.id, path_of(d)) for d in documents] == [("c", ()), ("tv/b", ("tv",)), ("tv/oled/a", ("tv", "oled"))]
    assert [d.text for d in documents] == ["", "Three.", "One. Two."]
    (tmp_path / "zip.txt.gz").write_bytes(gzip.compress(b"Packed."))
    assert (read(tmp_path)[-1].id, read(tmp_path)[-1].text) == ("zip", "Packed.")
    (tmp_path / "x.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"x.txt:1:1: byte 0xff is not UTF-8"):
        read(tmp_path)


def test_hidden_folders_are_no_categories_and_their_texts_no_documents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / ".kept" / "texts"
    for name in ("tv/a.txt", "tv/.ipynb_checkpoints/a.txt", ".git/about.md", ".git/HEAD", ".draft.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("One.", encoding="utf-8")
    assert [(d.id, path_of(d)) for d in read(folder)] == [("tv/a", ("tv",))]
    assert f"{folder}: 3 hidden texts (a part of the path begins with a dot) are left out" in caplog.text
    assert "are no texts" not in caplog.text
    (folder / "tv/a.txt").unlink()
    with pytest.raises(DataError, match=r"holds no text: .*; 3 hidden ones .* are not read"):
        read(folder, format="folder")
    assert format_of(folder).name == "hub"


def test_pretrain_1_sentences(cases: Path) -> None:
    """Counts, offsets, order, nothing lost; documents without a sentence have none."""
    due = json.loads((cases / "PRETRAIN-1.expected.json").read_text(encoding="utf-8"))["sentences"]
    lines = (cases / "PRETRAIN-1.jsonl").read_text(encoding="utf-8").strip("\n").split("\n")
    for line in map(json.loads, lines):
        text, spans = line["text"], sentences(line["text"])
        if isinstance(due[line["id"]], int):
            assert len(spans) == due[line["id"]], line["id"]
        covered = [place for start, stop in spans for place in range(start, stop)]
        assert covered == sorted(set(covered))
        assert not "".join(c for place, c in enumerate(text) if place not in set(covered)).strip()
        (cut,) = with_sentences([Document("d", text=text)])
        assert cut.sentences == tuple(text[a:b] for a, b in spans)


def test_names_with_marks_are_read_whole_however_they_are_composed() -> None:
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e"
    assert spelled(hindi) == hindi
    found = map_category("Cafe\u0301", [("A", "Caf\u00e9"), ("B", "Tea")], {})
    assert (found.leaf, found.exact) == (("A", "Caf\u00e9"), True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "group\tarchive\tname\tcategory\nPhysics\t\tOptics\tphys.opt\n"),
        ("t.tsv", "code\tlabel\tparent\n1\tRoot\t\n2\t \t1\n"),
        ("t.json", '{"a": ["Root", " "]}'),
    ],
)
def test_a_node_without_a_name_is_refused_in_any_form(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.(tsv|json): the path '.*' has a node without a name"):
        read_taxonomy(tmp_path / name)


def test_two_texts_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "a.md"):
        (tmp_path / name).write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.md and .*a\.txt would both be the text 'a'. Rename one"):
        read(tmp_path)


def test_blank_sentences_of_a_document_are_passed_over() -> None:
    given = [
        Document("a", text="One. Two.", sentences=("One.", " ", "Two.")),
        Document("b", text=" ", sentences=(" ",)),
    ]
    assert [one.sentences for one in with_sentences(given)] == [("One.", "Two."), ()]
