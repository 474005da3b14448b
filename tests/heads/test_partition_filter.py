"""The network's tables against a dense table per item, and its loss and decoding against plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from encodeonce.errors import ConfigError
from encodeonce.graphs import Graph, Relation
from encodeonce.heads.partition_filter import ENTITY, RELATION, Pairs, PartitionFilterNetwork, Tables
from encodeonce.nn.pair_table import Cells
from encodeonce.nn.rows import Rows
from encodeonce.spans import Span

WIDTH, TYPES, RELATIONS = 8, ("P", "Q"), ("R1", "R2", "R3")
WORDS = [(-1, 0, 1, 1, 2, -1), (-1, 0, -1), (-1, 0, 0, 0, 1, 2, 3, 3, 4, -1)]
"""Word of each piece: 3, 1 and 5 words."""


def rows_of(words: list[tuple[int, ...]] = WORDS) -> Rows:
    return Rows(tuple(map(len, words)), np.concatenate([np.array(word, dtype=np.int64) for word in words]))


def made(longest: int | None = None) -> PartitionFilterNetwork:
    torch.manual_seed(1)
    return PartitionFilterNetwork(WIDTH, TYPES, RELATIONS, longest, hidden=6).eval()


def dense(scores: Tables, item: int) -> tuple[np.ndarray, np.ndarray]:
    """[W, W, C] of one item, NaN where there is no cell."""
    first, n = int(scores.first_words[item]), scores.counts[item]
    found = []
    for logits, cells in ((scores.entities, scores.entity_cells), (scores.relations, scores.relation_cells)):
        table = np.full((n, n, logits.shape[1]), np.nan)
        own = (cells.row >= first) & (cells.row < first + n) & cells.inside
        table[cells.row[own] - first, cells.column[own] - first] = logits.detach().numpy()[own]
        found.append(table)
    return found[0], found[1]


def filled(counts: tuple[int, ...], graphs: list[Graph], longest: int | None = None, sure: float = 9.0) -> Tables:
    """Logits that say exactly these graphs."""
    spans, pairs = Cells.of(counts, longest or max(counts)), Cells.of(counts)
    entities = torch.full((len(spans.row), len(TYPES)), -sure)
    relations = torch.full((len(pairs.row), len(RELATIONS)), -sure)
    for first, graph in zip(np.cumsum((0, *counts)), graphs, strict=False):
        for span in graph.entities:
            cell = spans.at(np.array([first + span.start]), np.array([first + span.stop - 1]))
            entities[torch.from_numpy(cell), TYPES.index(span.type)] = sure
        for relation in graph.relations:
            ends = [np.array([first + graph.entities[end].start]) for end in (relation.head, relation.tail)]
            relations[torch.from_numpy(pairs.at(*ends)), RELATIONS.index(relation.type)] = sure
    return Tables(entities, spans, counts, given(relations, pairs))


def given(relations: torch.Tensor, all_pairs: Cells) -> Pairs:
    """Scores of pairs of chosen words, looked up in the table of all."""

    def pairs(chosen: np.ndarray, n_chosen: tuple[int, ...]) -> tuple[torch.Tensor, Cells]:
        cells = Cells.of(n_chosen)
        return relations[torch.from_numpy(all_pairs.at(chosen[cells.row], chosen[cells.column]))], cells

    return pairs


GRAPHS = [
    Graph((Span("P", 0, 1), Span("Q", 0, 3), Span("P", 1, 2)), (Relation("R1", 2, 0), Relation("R2", 2, 0))),
    Graph(),
    Graph((Span("P", 1, 4), Span("Q", 2, 3), Span("P", 4, 5)), (Relation("R1", 0, 1), Relation("R1", 1, 0))),
]


def ids(graphs: list[Graph]) -> tuple[torch.Tensor, tuple[int, ...]]:
    rows, counts = [], []
    for graph in graphs:
        own = [(ENTITY, s.start, s.stop - 1, TYPES.index(s.type)) for s in graph.entities]
        starts = [span.start for span in graph.entities]
        own += [(RELATION, starts[r.head], starts[r.tail], RELATIONS.index(r.type)) for r in graph.relations]
        rows += own
        counts.append(len(own))
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 4), tuple(counts)


@pytest.mark.parametrize("longest", [None, 1, 2, 5])
def test_A9_loss_is_the_binary_cross_entropy_of_both_tables_summed(longest: int | None) -> None:
    head = made(longest)
    scores = head(torch.randn(sum(map(len, WORDS)), WIDTH), rows_of())
    expected = 0.0
    for item, graph in enumerate(GRAPHS):
        for table, logits in enumerate(dense(scores, item)):
            gold = np.zeros_like(logits)
            for row in ids([graph])[0].tolist():
                if row[0] == table:
                    gold[tuple(row[1:])] = 1
            for i, j, c in zip(*np.nonzero(~np.isnan(logits)), strict=True):
                assert table == RELATION or 0 <= j - i < (longest or 99)  # the triangle
                pair = torch.tensor(logits[i, j, c]), torch.tensor(gold[i, j, c])
                expected += binary_cross_entropy_with_logits(*pair).item()
    assert head.loss(scores, *ids(GRAPHS)).item() == pytest.approx(expected, rel=1e-5)


def test_an_item_without_gold_is_all_no() -> None:
    head = made()
    scores = head(torch.randn(3, WIDTH), rows_of(WORDS[1:2]))
    loss = head.loss(scores, *ids([Graph()]))
    logits = torch.cat([scores.entities.flatten(), scores.relations.flatten()])
    torch.testing.assert_close(loss, binary_cross_entropy_with_logits(logits, torch.zeros(5), reduction="sum"))


def test_REL2_gold_scores_decode_to_gold_nested_overlapping_and_of_several_relations() -> None:
    scores = filled((3, 1, 5), [GRAPHS[0]._replace(relations=()), *GRAPHS[1:]])
    assert made().decode(scores, Rows.of((3, 1, 5))) == [GRAPHS[0]._replace(relations=()), *GRAPHS[1:]]
    flat = Graph((Span("P", 0, 1), Span("Q", 2, 3)), (Relation("R1", 0, 1), Relation("R2", 0, 1), Relation("R2", 1, 0)))
    assert made().decode(filled((3,), [flat]), Rows.of((3,))) == [flat]


def test_A9_a_relation_needs_predicted_entities_at_both_ends() -> None:
    scores = filled((4,), [Graph((Span("P", 0, 1), Span("P", 2, 3)), (Relation("R1", 0, 1),))])
    lacking = scores.entities.clone()
    lacking[scores.entity_cells.at(np.array([2]), np.array([2]))] = -1.0
    found = made().decode(replace(scores, entities=lacking), Rows.of((4,)))
    assert found == [Graph((Span("P", 0, 1),), ())]


def test_of_entities_that_begin_alike_the_most_probable_one_is_the_end() -> None:
    scores = filled((3,), [GRAPHS[0]])
    for better, number in ((np.array([0]), 0), (np.array([2]), 1)):
        scores.entities[scores.entity_cells.at(np.array([0]), better)] += 1.0
        (found,) = made().decode(scores, Rows.of((3,)))
        assert found.entities == GRAPHS[0].entities
        assert found.relations == (Relation("R1", 2, number), Relation("R2", 2, number))
        scores.entities[scores.entity_cells.at(np.array([0]), better)] -= 1.0


def test_one_half_is_not_more_probable_than_not() -> None:
    assert made().decode(filled((2,), [Graph((Span("P", 0, 1),))], sure=0.0), Rows.of((2,))) == [Graph()]


def test_decoding_equals_a_loop_over_dense_tables() -> None:
    head = made()
    for table in (head.entity_table, head.relation_table):  # about every second cell says yes
        table.out.weight.data.mul_(20)
        table.out.bias.data.zero_()
    scores = head(5 * torch.randn(sum(map(len, WORDS)), WIDTH), rows_of())
    found = head.decode(scores, rows_of())
    assert 0 < sum(len(graph.relations) for graph in found) <= int((scores.relations > 0).sum())
    for item, graph in enumerate(found):
        entities, relations = dense(scores, item)
        n = scores.counts[item]
        spans = [Span(TYPES[c], i, j + 1) for i, j, c in np.argwhere(np.nan_to_num(entities, nan=-1) > 0)]
        assert list(graph.entities) == sorted(spans, key=lambda s: (s.start, s.stop, s.type))
        told = set()
        for i, j, c in np.argwhere(relations > 0):
            ends = [[s for s in graph.entities if s.start == at] for at in (i, j)]
            if all(ends):
                best = [max(e, key=lambda s: entities[s.start, s.stop - 1, TYPES.index(s.type)]) for e in ends]
                told.add((RELATIONS[c], *map(graph.entities.index, best)))
        assert {tuple(relation) for relation in graph.relations} == told
        assert len(graph.relations) == len(told)
        assert n == len({w for w in WORDS[item] if w >= 0})


def test_pairs_of_chosen_words_are_scored_as_in_the_table_of_all() -> None:
    head = made()
    scores = head(torch.randn(sum(map(len, WORDS)), WIDTH), rows_of())
    chosen = np.array([0, 2, 4, 5, 8])  # two words of the first item, none of the second, three of the third
    logits, cells = scores.pairs(chosen, (2, 0, 3))
    whole = scores.relation_cells.at(chosen[cells.row], chosen[cells.column])
    assert len(logits) == 2 * 2 + 3 * 3
    torch.testing.assert_close(logits, scores.relations[torch.from_numpy(whole)], atol=1e-6, rtol=1e-5)


def test_only_pairs_of_words_where_entities_begin_are_scored_for_a_prediction() -> None:
    asked = []
    scores = filled((3, 1, 5), GRAPHS)

    def pairs(chosen: np.ndarray, n_chosen: tuple[int, ...]) -> tuple[torch.Tensor, Cells]:
        asked.append((chosen.tolist(), n_chosen))
        return scores.pairs(chosen, n_chosen)

    assert made().decode(replace(scores, pairs=pairs), Rows.of((3, 1, 5))) == made().decode(scores, Rows.of((3, 1, 5)))
    assert asked == [([0, 1, 5, 6, 8], (2, 0, 3))]
    assert made().decode(replace(filled((2,), [Graph()]), pairs=pairs), Rows.of((2,))) == [Graph()]
    assert len(asked) == 1


def test_A15_nothing_depends_on_the_items_beside() -> None:
    head, vectors, start = made(), torch.randn(sum(map(len, WORDS)), WIDTH), 0
    together = head(vectors, rows_of())
    for item, words in enumerate(WORDS):
        alone = head(vectors[start : start + len(words)], rows_of([words]))
        start += len(words)
        for one, other in zip(dense(alone, 0), dense(together, item), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-6)


def test_every_parameter_gets_a_gradient_and_training_draws_dropout() -> None:
    head, vectors = made().train(), torch.randn(sum(map(len, WORDS)), WIDTH)
    first, second = head(vectors, rows_of()), head(vectors, rows_of())
    assert not torch.equal(first.relations, second.relations)
    head.loss(first, *ids(GRAPHS)).backward()
    assert all(parameter.grad.any() for parameter in head.parameters())


def test_no_items() -> None:
    head = made()
    scores = head(torch.zeros(0, WIDTH), Rows((), np.empty(0, np.int64)))
    assert head.decode(scores, Rows.of(())) == []


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least one relation type and each once; there is none"):
        PartitionFilterNetwork(WIDTH, TYPES, ())
    with pytest.raises(ConfigError, match=r"one entity type and each once; repeated: \['P'\]"):
        PartitionFilterNetwork(WIDTH, ("P", "P"), RELATIONS)
    with pytest.raises(ConfigError, match="longest=0 must be at least 1 word"):
        PartitionFilterNetwork(WIDTH, TYPES, RELATIONS, 0)
    for wrong in ({"hidden": 0}, {"hidden": -4}, {"dropconnect": 1.0}, {"dropconnect": -0.1}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
            PartitionFilterNetwork(WIDTH, TYPES, RELATIONS, **wrong)
    with pytest.raises(ConfigError, match=r"prior=1\.0 is a probability"):
        PartitionFilterNetwork(WIDTH, TYPES, RELATIONS, prior=1.0)


@pytest.mark.parametrize("prior", [0.01, 0.5])
def test_every_cell_starts_at_the_prior(prior: float) -> None:
    head = PartitionFilterNetwork(WIDTH, TYPES, RELATIONS, prior=prior).eval()
    for table in (head.entity_table, head.relation_table):
        torch.testing.assert_close(table.out.bias.sigmoid(), torch.full_like(table.out.bias, prior))
