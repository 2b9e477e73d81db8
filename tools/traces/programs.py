"""Made-up programs: how much memory each part of a model allocates, and when it frees it.

Sizes follow the models' arithmetic (tokens times widths times bytes of an element), not a measurement. Each program
takes a random generator, so that a seed decides it, and a number of steps.
"""

from trace_writer import Trace

HALF = 2
FLOAT = 4
MIB = 1 << 20


class Model:
    """A program's long-lived blocks, and the temporaries of one layer."""

    def __init__(self, trace, stream=0):
        self.trace = trace
        self.stream = stream
        self.parameters, self.gradients, self.ungraded, self.states = [], [], [], []

    def take(self, size, stream=None):
        return self.trace.allocate(max(int(size), 1), self.stream if stream is None else stream)

    def drop(self, *blocks):
        for block in blocks:
            self.trace.free(block)

    def weights(self, layers, width, element=HALF):
        """Matrices, biases and norms of a transformer. The optimizer's states come at its first step, gradients in
        each backward pass."""
        matrices = (3 * width * width, width * width, 4 * width * width, 4 * width * width)
        self.parameters = [
            matrix * element for _ in range(layers) for matrix in (*matrices, 3 * width, width, 4 * width, width)
        ]
        for size in self.parameters:
            self.take(size)
        self.gradients = []
        self.ungraded = []

    def gradients_of_layer(self):
        """Gradients of one layer's parameters: they live until the step ends."""
        if not self.ungraded:
            self.ungraded = list(self.parameters)
        for _ in range(8):
            self.gradients.append(self.take(self.ungraded.pop()))

    def optimize(self):
        """The step of the optimizer, whose states are made at the first; the gradients go."""
        if not self.states:
            for size in self.parameters:
                self.states += [self.take(2 * size), self.take(2 * size)]
        for size in self.parameters[:8]:
            self.temporary(2 * size)
        self.drop(*self.gradients)
        self.gradients = []
        self.ungraded = []

    def temporary(self, *sizes):
        """Lives for one operation."""
        self.drop(*[self.take(size) for size in sizes])

    def attention(self, tokens, width):
        """One layer's forward pass. Returns what the backward pass needs."""
        normed = self.take(tokens * width * HALF)
        qkv = self.take(3 * tokens * width * HALF)
        attended = self.take(tokens * width * HALF)
        self.temporary(tokens * FLOAT * 16)
        out = self.take(tokens * width * HALF)
        return [normed, qkv, attended, out]

    def perceptron(self, tokens, width, factor=4):
        normed = self.take(tokens * width * HALF)
        up = self.take(tokens * factor * width * HALF)
        gated = self.take(tokens * factor * width * HALF)
        out = self.take(tokens * width * HALF)
        return [normed, up, gated, out]

    def backward(self, saved, tokens, width, factor=4):
        """Frees what the forward pass saved, newest first, among gradients that live for an operation or two."""
        gradient = self.take(tokens * width * HALF)
        for block in reversed(saved):
            grown = self.take(tokens * width * HALF * (factor if block % 3 == 0 else 1))
            self.temporary(width * width * HALF)
            self.drop(block)
            self.drop(gradient)
            gradient = grown
        if self.parameters:
            self.gradients_of_layer()
        self.drop(gradient)

    def head(self, tokens, vocabulary):
        logits = self.take(tokens * vocabulary * HALF)
        wide = self.take(tokens * vocabulary * FLOAT)
        loss = self.take(FLOAT)
        gradient = self.take(tokens * vocabulary * FLOAT)
        self.drop(wide, loss)
        narrow = self.take(tokens * vocabulary * HALF)
        self.drop(gradient, logits, narrow)


def checkpointing(random, steps, width=2048, layers=24, lengths=(256, 2049), batch_size=8):
    """A language model that recomputes each layer in the backward pass; batches of changing length."""
    trace = Trace()
    model = Model(trace)
    model.weights(layers, width)
    for _ in range(steps):
        tokens = batch_size * random.randrange(*lengths, 8)
        batch = [model.take(tokens * 8), model.take(tokens * 8)]
        kept = [model.take(tokens * width * HALF)]
        for _ in range(layers):
            saved = model.attention(tokens, width) + model.perceptron(tokens, width)
            kept.append(saved.pop())
            model.drop(*saved)
        model.head(tokens, 32000)
        for _ in range(layers):
            saved = model.attention(tokens, width) + model.perceptron(tokens, width)
            model.backward(saved, tokens, width)
            model.drop(kept.pop())
        model.drop(*kept, *batch)
        model.optimize()
    return trace


def pipeline(random, steps, width=2048, layers=8, in_flight=4, micro_batches=8):
    """One stage of a pipeline: several micro-batches between their forward and their backward pass."""
    trace = Trace()
    model = Model(trace)
    model.weights(layers, width)
    for _ in range(steps):
        waiting = []
        lengths = [4 * random.randrange(512, 2049, 64) for _ in range(micro_batches)]
        for index in range(micro_batches + in_flight):
            if index < micro_batches:
                tokens = lengths[index]
                received = model.take(tokens * width * HALF, stream=1)
                saved = [received]
                for _ in range(layers):
                    saved += model.attention(tokens, width) + model.perceptron(tokens, width)
                waiting.append((tokens, saved))
            if index >= in_flight:
                tokens, saved = waiting.pop(0)
                gradient = model.take(tokens * width * HALF, stream=1)
                model.backward(saved, tokens, width)
                model.drop(gradient)
        model.optimize()
    return trace


def experts(random, steps, width=1536, layers=12, count=16):
    """A mixture of experts whose tokens choose few of them more often than the others."""
    trace = Trace()
    model = Model(trace)
    model.weights(layers, width)
    for _ in range(layers * count):
        model.take(2 * width * 2 * width * HALF)
    for _ in range(steps):
        tokens = 8192
        saved_layers = []
        for _ in range(layers):
            saved = model.attention(tokens, width)
            scores = model.take(tokens * count * FLOAT)
            weights = [random.paretovariate(1.1) for _ in range(count)]
            parts = [int(2 * tokens * weight / sum(weights)) for weight in weights]
            gathered = []
            for part in parts:
                if part == 0:
                    continue
                rows = model.take(part * width * HALF)
                hidden = model.take(part * 2 * width * HALF)
                model.temporary(part * 2 * width * HALF)
                out = model.take(part * width * HALF)
                gathered.append((rows, hidden, out))
            combined = model.take(tokens * width * HALF)
            for rows, hidden, out in gathered:
                model.drop(out)
                saved += [rows, hidden]
            saved_layers.append(saved + [scores, combined])
        model.head(tokens, 32000)
        for saved in reversed(saved_layers):
            model.backward(saved, tokens, width, factor=2)
        model.optimize()
    return trace


def paged_cache(random, steps, width=4096, layers=16):
    """Serving: a cache of pages that requests fill and leave, and batches that change in every step."""
    trace = Trace()
    model = Model(trace)
    model.weights(layers, width // 2)
    running = []
    for step in range(steps):
        while len(running) < 24 and random.random() < 0.6:
            running.append({"left": random.randrange(8, 200), "tokens": random.randrange(16, 2000), "pages": []})
        prefill = [request for request in running if not request["pages"]]
        for request in running:
            wanted = 1 + request["tokens"] // 256
            while len(request["pages"]) < wanted:
                request["pages"].append(model.take(2 * 256 * width * HALF))
            request["tokens"] += 1
            request["left"] -= 1
        tokens = sum(request["tokens"] for request in prefill) + len(running)
        if tokens > 0:
            hidden = model.take(tokens * width * HALF)
            for _ in range(layers // 4):
                model.temporary(3 * tokens * width * HALF, tokens * width * HALF)
                wide = model.take(tokens * 3 * width * HALF)
                model.temporary(tokens * 3 * width * HALF)
                grown = model.take(tokens * width * HALF)
                model.drop(wide, hidden)
                hidden = grown
            model.drop(hidden)
            model.temporary(max(len(running), 1) * 128000 * FLOAT)
        if step % 50 == 49:
            random.shuffle(running)
        for request in [request for request in running if request["left"] <= 0]:
            model.drop(*request["pages"])
            running.remove(request)
    return trace


def unet(random, steps, channels=128, levels=4):
    """A U-Net on images of changing sizes: large maps at the top that wait for the way up."""
    trace = Trace()
    model = Model(trace)
    for level in range(levels):
        for _ in range(24):
            model.take(9 * (channels << level) ** 2 * FLOAT // 4)
    for _ in range(steps):
        height, broad = (64 * random.randrange(4, 13) for _ in range(2))
        images = 4
        maps = [images * (channels << level) * (height >> level) * (broad >> level) * HALF for level in range(levels)]
        skipped, saved = [], []
        for level in range(levels):
            for _ in range(2):
                saved.append([model.take(maps[level]), model.take(maps[level])])
                model.temporary(maps[level])
            skipped.append(model.take(maps[level]))
        for level in reversed(range(levels)):
            joined = model.take(2 * maps[level])
            for _ in range(2):
                saved.append([model.take(maps[level]), model.take(maps[level])])
                model.temporary(maps[level] // 2)
            saved.append([joined, skipped.pop()])
        gradient = model.take(maps[0])
        for blocks in reversed(saved):
            size = maps[min(len(saved) // 4, levels - 1)] if len(blocks) > 2 else maps[random.randrange(levels)]
            grown = model.take(size)
            model.temporary(size)
            model.drop(gradient, *blocks)
            gradient = grown
        model.drop(gradient)
    return trace


def checkpointing_fixed(random, steps):
    """The same as checkpointing, with batches of one length."""
    return checkpointing(random, steps, lengths=(2048, 2049))


# Name -> program, and the steps that make a trace of some ten thousand events.
PROGRAMS = {
    "checkpointing": (checkpointing, 20),
    "checkpointing_fixed": (checkpointing_fixed, 20),
    "experts": (experts, 12),
    "paged_cache": (paged_cache, 600),
    "pipeline": (pipeline, 12),
    "unet": (unet, 150),
}
