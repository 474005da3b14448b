"""Tag a treebank from stored layers, in Python. Six steps: task, model, store, method, fit, evaluate.

    python recipes/tag.py train.conllu dev.conllu test.conllu ENCODER

ENCODER is a Hugging Face folder or hub name. The second run finds everything in the store and loads no encoder.
"""

import sys

import encodeonce as eo

if len(sys.argv) != 5:
    sys.exit(__doc__)
train, dev, test = (eo.read(name) for name in sys.argv[1:4])
task = eo.named("upos").learn(train)

model = eo.Pretrained(sys.argv[4])
store = eo.Store.open("states", model.spec(layers="all", dtype="fp16"))
print(store.fill([*train, *dev, *test], model))

settings = eo.Settings(learning_rate=2e-3, num_train_epochs=5, seed=13)
method = eo.Aggregate.build(eo.Variant("adapted"), store.spec, [task], settings.seed)
splits = [method.read(store, documents, [task]) for documents in (train, dev, test)]
done = eo.fit(method, splits[0], {task.name: task}, settings, dev=splits[1])

print(eo.evaluate(method, splits[2], {task.name: task}).scores)
