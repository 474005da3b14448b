"""Search over stored vectors, held against a sort of all fp64 scores in NumPy."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_source import spec
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.errors import ConfigError, MissingExtra, NonFinite, TooFewVectors
from encodeonce.store import Search, Store, Stored, approximate, scan, scan_kernel
from encodeonce.store import search as search_file
from encodeonce.store.search import METRICS
from encodeonce.types import Document, Neighbours, Pieces


def brute(rows: np.ndarray, queries: np.ndarray, k: int, metric: str, exclude: Any = None) -> Neighbours:
    """Every score in fp64, a stable sort, nothing clever."""
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    ids, scores = [], []
    for q, query in enumerate(queries):
        if metric == "l2":
            score = ((rows - query) ** 2).sum(1)
        else:
            score = (rows * query).sum(1)
        if metric == "cosine":
            lengths = np.sqrt((rows**2).sum(1) * (query**2).sum())
            score = np.where(lengths > 0, score / np.where(lengths > 0, lengths, 1), 0).clip(-1, 1)
        key = score if metric == "l2" else -score
        order = [i for i in np.argsort(key, kind="stable") if exclude is None or i not in set(exclude[q])][:k]
        ids.append(order)
        scores.append(score[order])
    return Neighbours(np.array(ids), np.array(scores, np.float32))


def random(n: int, width: int, seed: int = 0) -> np.ndarray:
    """Rows that lean to one side, as those of encoders do."""
    made = np.random.default_rng(seed).standard_normal((n, width), np.float32)
    return made + 3 * np.random.default_rng(99).standard_normal(width, np.float32)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, torch.bfloat16])
def test_equals_a_sort_of_all_scores(metric: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "ROWS", 700)
    plain = random(3000, 24)
    rows = torch.from_numpy(plain).to(dtype) if isinstance(dtype, torch.dtype) else plain.astype(dtype)
    before = rows.clone() if isinstance(rows, torch.Tensor) else rows.copy()
    true = rows.float().numpy() if isinstance(rows, torch.Tensor) else rows
    queries = random(70, 24, seed=1)
    expected = brute(true, queries, 9, metric)
    for memory in (1 << 30, 0):
        found = Search(rows, metric, memory=memory).find(queries, 9)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6, atol=1e-6)
    assert bool((rows == before).all())
    assert found.ids.dtype == np.int64
    assert found.scores.dtype == np.float32


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.sampled_from(METRICS), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_ties_go_to_the_lowest_id(n: int, width: int, n_queries: int, metric: Any, seed: int) -> None:
    """Small whole numbers tie often and are exact in every arithmetic."""
    draw = np.random.default_rng(seed)
    rows = draw.integers(-2, 3, (n, width)).astype(np.float32)
    queries = draw.integers(-2, 3, (n_queries, width)).astype(np.float32)
    k = int(draw.integers(1, n + 1))
    found, expected = Search(rows, metric).find(queries, k), brute(rows, queries, k, metric)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_equal_rows_far_apart_have_equal_scores_and_stand_by_id() -> None:
    rows = random(5000, 40)
    rows[[17, 2500, 4999]] = rows[3]
    found = Search(rows, "l2").find(rows[3:4] + 0.01, 4)
    assert found.ids.tolist() == [[3, 17, 2500, 4999]]
    assert len(set(found.scores[0].tolist())) == 1


def test_rows_of_very_different_lengths_are_not_lost() -> None:
    """The error of rounding grows with a row's length: a bound of the usual length would lose the long ones."""
    rows = random(4000, 16) * np.logspace(-4, 4, 4000)[:, None].astype(np.float32)
    for metric in METRICS:
        queries = random(8, 16, seed=5)
        np.testing.assert_array_equal(
            Search(rows, metric).find(queries, 20).ids, brute(rows, queries, 20, metric).ids, err_msg=metric
        )


@pytest.mark.parametrize("scale", [1e-22, 1e-21, 1e-20, 1e17])
def test_vectors_whose_squares_nearly_leave_fp32_are_not_lost(scale: float) -> None:
    rows, queries = (random(2000, 16) * np.float32(scale), random(8, 16, seed=5) * np.float32(scale))
    for metric in METRICS:
        np.testing.assert_array_equal(
            Search(rows, metric).find(queries, 5).ids, brute(rows, queries, 5, metric).ids, err_msg=metric
        )


def test_vectors_too_long_for_scores_of_fp32_are_refused_but_for_cosines() -> None:
    """Rows 3 and 5 alike are 5e19 long: their squared distances, 2.5e39 and more, are over fp32's 3.4e38."""
    rows = np.zeros((6, 2), np.float32)
    rows[3], rows[5], rows[:3, 0] = (3e19, 4e19), (-3e19, 4e19), 1
    for metric in ("l2", "ip"):
        with pytest.raises(NonFinite, match=rf"^row 3 is 5e\+19 long; beyond 2.31e\+18 its scores by '{metric}' do"):
            Search(rows, metric)
        with pytest.raises(NonFinite, match=r"^query 3 is 5e\+19 long"):
            Search(rows[:3], metric).find(rows, 1)
    found = Search(rows, "cosine").find(rows[3:4], 2)
    assert found.ids.tolist() == [[3, 0]]
    np.testing.assert_allclose(found.scores, [[1, 0.6]], rtol=1e-6)


def test_cosines_that_differ_by_less_than_fp32_can_say_are_still_ranked() -> None:
    rows = 100 + 2e-4 * np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)
    queries = 100 + 2e-4 * np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    for kind in ("cosine", "l2"):
        np.testing.assert_array_equal(Search(rows, kind).find(queries, 10).ids, brute(rows, queries, 10, kind).ids)


def test_each_way_of_rounding_has_a_way_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler bfloat16, where its sums are fp32, else fp32; a row too wide for sums in 32 bits likewise."""
    monkeypatch.setattr(scan_kernel, "usable", lambda: True)
    monkeypatch.setattr(scan, "sums_are_fp32", lambda: True)
    assert [type(scan.form_for(width)) for width in (384, 100_000, 200_000)] == [scan.Bytes, scan.Bytes, scan.Halves]
    monkeypatch.setattr(scan_kernel, "usable", lambda: False)
    assert type(scan.form_for(384)) is scan.Halves
    monkeypatch.setattr(scan, "sums_are_fp32", lambda: False)
    assert type(scan.form_for(384)) is scan.Floats


@pytest.mark.parametrize("form", [form for form in scan.FORMS if form.fits(24)], ids=lambda form: type(form).__name__)
@pytest.mark.parametrize("n_queries", [1, 2, 70])
def test_every_form_of_the_rounded_rows_finds_the_same(
    form: scan.Form, n_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "ROWS", 700)
    monkeypatch.setattr(scan, "form_for", lambda width: form)
    rows, queries = random(3000, 24), random(n_queries, 24, seed=3)
    rows[:, 3] *= 100  # one coordinate leaves the others few steps
    for metric in METRICS:
        expected = brute(rows, queries, 10, metric).ids
        np.testing.assert_array_equal(Search(rows, metric).find(queries, 10).ids, expected)


@pytest.mark.parametrize("form", [form for form in scan.FORMS if form.fits(24)], ids=lambda form: type(form).__name__)
@pytest.mark.parametrize("scale", [1e-25, 1, 1e12])
def test_no_product_is_further_off_than_the_pass_thinks(
    form: scan.Form, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "form_for", lambda width: form)
    rows, queries = (random(n, 24, seed) * np.float32(scale) for n, seed in ((500, 1), (40, 2)))
    rows[::3, 5] *= 50
    rows[7], queries[7] = 0, 0
    made = scan.Scan(lambda part: rows[part], rows.shape, squared=False, memory=1 << 30, off=0.0)
    asked, errors = made._asked(torch.from_numpy(queries))
    ((_, product, parts, _),) = made.held
    wrong = np.abs(product(asked).float().numpy() - queries.astype(np.float64) @ rows.T.astype(np.float64))
    assert (wrong <= (errors @ parts).numpy()).all()


@pytest.mark.skipif(not scan_kernel.usable(), reason="there is no C compiler")
@pytest.mark.parametrize("flags", [(), ("-mno-avx2",) if platform.machine() == "x86_64" else ()])
def test_products_of_bytes_are_whole_numbers(flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor's vectors and without, on three threads, against NumPy's of 64 bits, to the ends of both."""
    monkeypatch.setattr(scan_kernel, "FLAGS", (*scan_kernel.FLAGS, *flags))
    found = scan_kernel._library.__wrapped__()
    monkeypatch.setattr(scan_kernel, "_library", lambda: found)
    monkeypatch.setattr(scan_kernel, "ROWS_A_THREAD", 16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    draw = np.random.default_rng(0)
    for n, n_queries, width in ((1, 1, 16), (2, 4, 32), (33, 9, 48), (70, 6, 512)):
        rows = draw.integers(-127, 128, (n, width), np.int8)
        queries = draw.integers(-32767, 32768, (n_queries, width), np.int16)
        rows[0], queries[0], queries[-1] = 127, -32767, 32767
        exact = queries.astype(np.int64) @ rows.T.astype(np.int64)
        assert np.abs(exact).max() < 2**31
        unit, asked = draw.random(n, np.float32), draw.random(n_queries, np.float32)
        given = (torch.from_numpy(x) for x in (rows, queries, unit, asked))
        np.testing.assert_allclose(scan_kernel.products(*given), exact * unit * asked[:, None], rtol=3e-7)


def test_I27_a_stored_vector_finds_itself_at_distance_0_and_not_when_excluded() -> None:
    rows = random(500, 12)
    search = Search(rows, "l2")
    found = search.find(rows[:20], 3)
    assert found.ids[:, 0].tolist() == list(range(20))
    assert found.scores[:, 0].tolist() == [0.0] * 20
    exclude = [[q] for q in range(20)]
    without = search.find(rows[:20], 2, exclude=exclude)
    np.testing.assert_array_equal(without.ids, found.ids[:, 1:])
    np.testing.assert_array_equal(without.ids, brute(rows, rows[:20], 2, "l2", exclude).ids)


def test_I27_on_unit_vectors_l2_and_ip_agree_and_d2_is_2_minus_2_ip() -> None:
    rows, queries = (search_file.unit(random(n, 12, seed)) for n, seed in ((400, 0), (6, 1)))
    by_distance, by_product = Search(rows, "l2").find(queries, 50), Search(rows, "ip").find(queries, 50)
    np.testing.assert_array_equal(by_distance.ids, by_product.ids)
    np.testing.assert_allclose(by_distance.scores, 2 - 2 * by_product.scores, atol=1e-5)


def test_case_RETR1_fewer_vectors_than_k(cases: Path) -> None:
    case = json.loads((cases / "RETR-1.json").read_text("utf-8"))
    rows, query = np.array(case["vectors"], np.float32), np.array([case["query"]], np.float32)
    with pytest.raises(TooFewVectors, match=r"5 neighbours asked for, but there are 3 vectors.*Ask for at most 3"):
        Search(rows, "ip").find(query, 5)
    for kind in ("exact", "flat", "hnsw"):
        found = Search(rows, "ip", kind).find(query, case["k"], allow_fewer=True)
        said = [[case["ids"][i], score] for i, score in zip(found.ids[0], found.scores[0].tolist(), strict=True)]
        assert said == case["expected"], kind
    empty = Search(np.empty((0, 2), np.float32), "ip").find(query, case["empty_index"]["k"], allow_fewer=True)
    assert empty.ids[0].tolist() == case["empty_index"]["expected"]


def test_case_RETR2_cosine_of_vectors_that_are_not_unit_length(cases: Path) -> None:
    case = json.loads((cases / "RETR-2.json").read_text("utf-8"))
    rows = np.array(case["vectors"], np.float32)
    query = np.array([case["query"]], np.float32)
    given = rows.copy(), query.copy()
    for kind in ("exact", "flat"):
        found = Search(rows, "cosine", kind).find(query, 3)
        assert [case["ids"][i] for i in found.ids[0]] == ["A", "B", "Z"]
        assert found.scores[0].tolist() == pytest.approx([1.0, 0.7071, 0.0], abs=1e-4)
        assert found.scores.max() <= 1
    np.testing.assert_array_equal(rows, given[0])
    np.testing.assert_array_equal(query, given[1])
    by_distance = Search(rows, "l2").find(query, 3)
    assert [case["ids"][i] for i in by_distance.ids[0]] == case["l2_order_of_raw_vectors"]


def test_exclusion_that_leaves_too_few_says_how_many_are_left() -> None:
    search = Search(random(5, 3))
    with pytest.raises(TooFewVectors, match=r"there are 5 vectors and up to 3 of them are excluded.*at most 2"):
        search.find(random(2, 3), 3, exclude=[[0, 1, 1, 4], []])
    found = search.find(random(2, 3), 3, exclude=[[0, 1, 4], []], allow_fewer=True)
    assert found.ids.shape == (2, 2)
    assert set(found.ids[0].tolist()) == {2, 3}


def test_a_store_is_searched_in_the_order_of_the_keys(tmp_path: Path) -> None:
    documents = [Document(f"d{i}", text=f"text number {i}") for i in range(40)]
    vectors = {document.key: random(1, 8, seed=i)[0] for i, document in enumerate(documents)}

    class Pooled:
        def cut(self, documents: Any) -> list[Pieces]:
            one = np.zeros(1, np.int32)
            return [Pieces(d.key, one, one - 1, 0, ((0, 1, 0, 1),)) for d in documents]

        def encode(self, pieces: Any, layers: Any) -> Any:
            yield from ((i, vectors[p.key][None, None]) for i, p in enumerate(pieces))

    for dtype, tolerance in (("fp32", 0), ("fp16", 1e-2), ("int8", 0.1)):
        store = Store.open(tmp_path / dtype, spec(layers=(3,), dtype=dtype))
        store.fill(documents, Pooled())
        keys = [document.key for document in reversed(documents)]
        rows = Stored(store, keys)
        search = Search(rows, "cosine")
        np.testing.assert_allclose(
            search.vectors(np.array([0, 39])), [vectors[keys[0]], vectors[keys[39]]], atol=tolerance
        )
        asked = np.stack([vectors[key] for key in keys[:5]])
        held = search.find(asked, 4)
        assert held.ids[:, 0].tolist() == [0, 1, 2, 3, 4]
        read = Search(rows, "cosine", memory=0).find(asked, 4)
        np.testing.assert_array_equal(read.ids, held.ids)
        np.testing.assert_array_equal(read.scores, held.scores)


def test_a_store_of_pieces_is_refused(tmp_path: Path) -> None:
    from fake_source import FakeSource, documents

    store = Store.open(tmp_path / "pieces", spec())
    store.fill(documents(4), FakeSource())
    with pytest.raises(ConfigError, match=r"keeps 3 rows for item 0 \(unit='piece'\).*unit='text'"):
        Stored(store, [document.key for document in documents(4)])


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
@pytest.mark.parametrize("metric", METRICS)
def test_faiss_proposes_and_scores_are_exact(kind: str, metric: Any) -> None:
    rows, queries = random(1500, 16), random(20, 16, seed=1)
    exclude = [[int(i)] for i in brute(rows, queries, 1, metric).ids[:, 0]]
    found = Search(rows, metric, kind).find(queries, 10, exclude=exclude)
    expected = brute(rows, queries, 10, metric, exclude)
    hits = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(found.ids, expected.ids, strict=True)])
    assert hits > (0.99 if kind == "flat" else 0.8)
    full = brute(rows, queries, 1500, metric)
    for q in range(len(queries)):
        scores = dict(zip(full.ids[q].tolist(), full.scores[q].tolist(), strict=True))
        assert [scores[i] for i in found.ids[q].tolist()] == pytest.approx(found.scores[q].tolist(), abs=1e-5)
        assert exclude[q][0] not in found.ids[q]


def test_ivf_visits_more_cells_until_k_are_found_and_never_gives_minus_1() -> None:
    rows = np.concatenate([random(400, 4) + 50 * c for c in range(10)])
    search = Search(rows, "l2", "ivf")
    found = search.find(rows[:3], 3500)
    assert found.ids.min() >= 0
    assert len(np.unique(found.ids[0])) == 3500


def test_ivfpq_rescores_its_candidates() -> None:
    rows, queries = random(9984, 12), random(10, 12, seed=1)
    found, expected = Search(rows, "l2", "ivfpq").find(queries, 10), brute(rows, queries, 10, "l2")
    hits = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(found.ids, expected.ids, strict=True)])
    assert hits > 0.6
    assert (np.diff(found.scores) >= 0).all()


def test_too_few_rows_to_train_on() -> None:
    with pytest.raises(ConfigError, match=r"kind='ivfpq' needs at least 9,984 rows to train on; there are 9,000"):
        Search(random(9000, 8), "l2", "ivfpq").find(random(1, 8), 1)
    assert approximate._cells(39 * 7, "ivf") == 7
    assert approximate._cells(10**8, "ivf") == 40_000


def test_kinds_by_size() -> None:
    big = 1 << 40
    chosen = [approximate.kind_for((n, 384), big) for n in (10, 200_000, 200_001, 2_000_000, 2_000_001)]
    assert chosen == ["exact", "exact", "hnsw", "hnsw", "ivf"]
    assert approximate.kind_for((10**7, 384), 1 << 30) == "ivfpq"
    assert Search(random(10, 3), kind="auto").kind == "exact"


def test_what_an_index_cannot_find_is_searched_exactly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows, queries = random(300, 8), random(4, 8, seed=1)
    search = Search(rows, "l2", "hnsw")
    index = search._approximate
    true = index.candidates
    monkeypatch.setattr(
        index, "candidates", lambda q, k, e: [ids if i else ids[:2] for i, ids in enumerate(true(q, k, e))]
    )
    np.testing.assert_array_equal(search.find(queries, 5).ids, brute(rows, queries, 5, "l2").ids)
    assert "1 of 4 queries had too few hits and are searched exactly" in caplog.text


def test_without_faiss_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pip install 'encodeonce\[search\]'"):
        Search(random(10, 3), "l2", "flat").find(random(1, 3), 1)


def test_what_cannot_be_searched() -> None:
    rows = random(6, 3)
    with pytest.raises(ConfigError, match=r"metric='cosin' is none of.*Did you mean 'cosine'"):
        Search(rows, "cosin")
    with pytest.raises(ConfigError, match=r"kind='hsnw' is none of.*Did you mean 'hnsw'"):
        Search(rows, "l2", "hsnw")
    with pytest.raises(ConfigError, match=r"rows of shape \(6,\)"):
        Search(rows[:, 0])
    with pytest.raises(ConfigError, match=r"queries have shape \(2, 4\); the rows searched are 3 wide"):
        Search(rows).find(random(2, 4), 1)
    with pytest.raises(ConfigError, match="exclude has 1 lists for 2 queries"):
        Search(rows).find(rows[:2], 1, exclude=[[0]])
    with pytest.raises(ConfigError, match="exclude names row 6 of 6"):
        Search(rows).find(rows[:1], 1, exclude=[[6]])
    with pytest.raises(ConfigError, match="k=0 must be at least 1"):
        Search(rows).find(rows, 0)
    broken = rows.copy()
    broken[4, 1] = np.nan
    with pytest.raises(NonFinite, match="row 4 holds inf or NaN"):
        Search(broken)
    with pytest.raises(NonFinite, match="query 4 holds inf or NaN"):
        Search(rows).find(broken, 1)
