"""Topics where there is no metadata (identity 15): clusters, their words, the hierarchy over them."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from encodeonce.errors import ConfigError, DataError
from encodeonce.methods.fastdoc.unsupervised import topics, topics_of


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fd15_topics_are_nested_at_every_depth() -> None:
    """The same class at a level implies the same class at every level above; sizes grow; outliers are null."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(12, 16)) * 3
    owner = np.repeat(np.arange(12), 20)
    vectors = (centres[owner] + generator.normal(size=(240, 16)) * 0.2).astype(np.float32)
    texts = [f"alpha{'abcdefghijkl'[k]} beta{'abcdefghijkl'[k // 2]} common words here" for k in owner]
    for depth in (1, 3, 7):
        found = topics(vectors, texts, depth, n_topics=12)
        assert len(set(found.leaves)) == 12
        whole = topics(vectors, texts, depth, n_topics=12, min_children=1)
        assert list(whole.n_classes) == sorted(whole.n_classes)
        assert whole.n_classes[-1] == 12
        for one in (found, whole):
            above: dict[str, str] = {}
            for path in one.paths:
                assert all(above.setdefault(under, over) == over for over, under in pairwise(path))
    for k in range(12):
        assert len({path[-1] for path, own in zip(found.paths, owner, strict=True) if own == k}) == 1
    assert any("alphaa" in words for words in found.words.values())
    order = generator.permutation(240)
    again = topics(vectors[order], [texts[i] for i in order], 3, n_topics=12)
    same = topics(vectors, texts, 3, n_topics=12)
    leaves = [path[-1] for path in again.paths]
    found_sets = {frozenset(order[[i for i in range(240) if leaves[i] == c]].tolist()) for c in set(leaves)}
    leaves = [path[-1] for path in same.paths]
    due = {frozenset(i for i in range(240) if leaves[i] == c) for c in set(leaves)}
    assert found_sets == due, "the order of documents changes no topic"
    listed = same.to_json()
    assert [one["documents"] for one in listed] == [20] * 12
    assert {tuple(one["path"]) for one in listed} == set(same.paths)
    assert all(f"alpha{'abcdefghijkl'[owner[same.paths.index(tuple(one['path']))]]}" in one["words"] for one in listed)
    own = topics_of(np.array([0, 0, 1, 1, -1]), ["cat cat", "cat dog", "car bus", "car car", "x"], 2)
    assert own.paths[4] == ()
    assert own.paths[0] == own.paths[1] != own.paths[2]
    assert own.to_json()[-1] == {"path": [], "documents": 1, "words": [], "above": []}


def test_too_few_documents_for_topics_are_named(caplog: pytest.LogCaptureFixture) -> None:
    vectors, texts = np.eye(12, dtype=np.float32), ["some words here"] * 12
    with pytest.raises(DataError, match="9 documents are too few for two topics of min_documents=5"):
        topics(vectors[:9], texts[:9])
    with pytest.raises(DataError, match="of 12 topics of 12 documents hold min_documents=5"):
        topics(vectors, texts, n_topics=12)
    with pytest.raises(ConfigError, match="n_topics=13 must lie between 2 and the 12 documents"):
        topics(vectors, texts, n_topics=13)
    copies = topics(np.repeat(vectors[:2], 6, axis=0), texts, 1, n_topics=3)
    assert [one["documents"] for one in copies.to_json()] == [6, 6], "the third holds nothing"
    topics_of(np.arange(12) % 3, texts, 5)
    assert "3 topics have 2 levels of different sizes, not 5" in caplog.text


LETTERS = "abcdef"


def drawn_topics(seed: int, k: int = 9) -> tuple[list[int], list[str]]:
    """Documents of random words, each topic with chances of its own; the last document is in none."""
    generator = np.random.default_rng(seed)
    vocabulary = [a + b + "word" for a in LETTERS for b in LETTERS]
    labels, texts = [], []
    for topic in range(k):
        chance = generator.dirichlet(np.full(len(vocabulary), 0.3))
        for _ in range(int(generator.integers(2, 6))):
            labels.append(topic)
            texts.append(" ".join(generator.choice(vocabulary, int(generator.integers(8, 30)), p=chance)))
    return [*labels, -1], [*texts, "aaword unheard"]


def counted(labels: list[int], texts: list[str]) -> list[Counter[str]]:
    """The words of each topic that two documents have."""
    inside = [(label, text.split()) for label, text in zip(labels, texts, strict=True) if label >= 0]
    met = Counter(word for _, words in inside for word in set(words))
    found = [Counter[str]() for _ in range(max(labels) + 1)]
    for label, words in inside:
        found[label].update(word for word in words if met[word] > 1)
    return found


def class_tf_idf(own: Counter[str], counts: list[Counter[str]]) -> dict[str, float]:
    """By its formula, a word at a time; `own` are one topic's words, or those of several."""
    mean = int(np.mean([one.total() for one in counts]))
    return {
        word: n / own.total() * float(np.log(1 + mean / sum(one[word] for one in counts))) for word, n in own.items()
    }


def ward(weights: list[dict[str, float]], size: int) -> set[frozenset[int]]:
    """Cosine distances joined by Lance and Williams' formula until so many clusters are left."""

    def cosine(one: dict[str, float], two: dict[str, float]) -> float:
        product = sum(value * two.get(word, 0.0) for word, value in one.items())
        return product / float(np.sqrt(sum(v * v for v in one.values()) * sum(v * v for v in two.values())))

    clusters = [frozenset([k]) for k in range(len(weights))]
    far = {
        frozenset([one, two]): 1 - cosine(weights[min(one)], weights[min(two)])
        for one, two in combinations(clusters, 2)
    }
    while len(clusters) > size:
        one, two = min(combinations(clusters, 2), key=lambda pair: far[frozenset(pair)])
        clusters = [other for other in clusters if other not in (one, two)]
        for other in clusters:
            squares = sum((len(c) + len(other)) * far[frozenset([c, other])] ** 2 for c in (one, two))
            squares -= len(other) * far[frozenset([one, two])] ** 2
            far[frozenset([one | two, other])] = float(np.sqrt(squares / (len(one) + len(two) + len(other))))
        clusters.append(one | two)
    return set(clusters)


@pytest.mark.parametrize("seed", range(6))
def test_fd15_the_hierarchy_is_wards_over_cosines_of_class_tf_idf(seed: int) -> None:
    """And each class is named by the ten words that weigh most in it."""
    labels, texts = drawn_topics(seed)
    counts = counted(labels, texts)
    weights = [class_tf_idf(own, counts) for own in counts]
    found = topics_of(labels, texts, 4, min_children=1)
    assert found.n_classes == (2, 3, 5, 9)
    for level, size in enumerate(found.n_classes):
        names = [path[level] for path in found.leaves]
        classes = {name: frozenset(k for k, own in enumerate(names) if own == name) for name in names}
        assert set(classes.values()) == ward(weights, size)
        for name, leaves in classes.items():
            marks = class_tf_idf(sum((counts[k] for k in leaves), Counter()), counts)
            assert [marks[word] for word in found.words[name]] == pytest.approx(sorted(marks.values())[:-11:-1])
    assert found.paths == (*(found.leaves[label] for label in labels[:-1]), ())


@pytest.mark.parametrize("least", [2, 3])
def test_no_topic_is_its_parents_only_child(least: int) -> None:
    """Each node has `least` below it at least, or all of its leaf topics; none of these is lost."""
    alone = 0
    for seed in range(6):
        labels, texts = drawn_topics(seed, 14)
        for depth in (2, 4, 7):
            below = {}
            for m in (least, 1):
                leaves = topics_of(labels, texts, depth, m).leaves
                below[m] = {
                    node: ({path[path.index(node) + 1] for path in inside}, len(inside))
                    for node in {node for path in leaves for node in path[:-1]}
                    if (inside := [path for path in leaves if node in path[:-1]])
                }
                assert len({path[-1] for path in leaves}) == 14
            assert all(len(own) >= min(least, n) > 1 for own, n in below[least].values())
            alone += sum(len(own) == 1 for own, _ in below[1].values())
    assert alone > 20, "which the levels as they are cut have"


def test_topics_of_a_bertopic_model_are_a_list() -> None:
    labels, texts = drawn_topics(0)
    assert topics_of(labels, texts) == topics_of(np.array(labels), texts)
    with pytest.raises(ConfigError, match="give a whole number for each text"):
        topics_of(labels[:-1], texts)


def test_words_beside_marks_and_of_other_scripts_mark_topics() -> None:
    """The project's words: without the comma, the quotes and the clitic; a Chinese character is a word."""
    texts = ['"Cats," it\'s 2021: cats!', "(Cats) again.", "state-of-the-art trees.", "Trees: state-of-the-art?"]
    found = topics_of([0, 0, 1, 1], texts, 1)
    assert [set(found.words[path[-1]]) for path in found.leaves] == [{"cats"}, {"state-of-the-art", "trees"}]
    chinese = topics_of([0, 0, 1, 1], ["河岸。河水", "河，", "树木", "树；"], 1)
    assert [chinese.words[path[-1]] for path in chinese.leaves] == [("河",), ("树",)]
