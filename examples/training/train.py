"""Trains a small neural network on the CPU, and can be stopped at any moment.

The network learns which of two spirals a point lies on. Everything that the next step depends on is
in the checkpoint: the weights, their velocities and the state of the dice. So a run that was
preempted, whenever and however often, ends with the same weights to the last bit.

    python train.py --steps 600 --every 50
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import cede.checkpoint as checkpoint

HIDDEN = 16
BATCH = 16
RATE = 0.02
MOMENTUM = 0.9


@dataclass
class Training:
    """The whole state of the training. Each hidden neuron is [x, y, bias, out]."""

    neurons: list[list[float]]
    velocities: list[list[float]]
    dice: random.Random

    @classmethod
    def begin(cls, seed: int) -> Training:
        dice = random.Random(seed)
        neurons = [[dice.gauss(0, 1) for _ in range(4)] for _ in range(HIDDEN)]
        return cls(neurons, [[0.0] * 4 for _ in range(HIDDEN)], dice)

    @classmethod
    def read(cls, path: Path) -> Training:
        data = json.loads(path.read_text())
        version, internal, gauss = data["dice"]
        dice = random.Random()
        dice.setstate((version, tuple(internal), gauss))
        return cls(data["neurons"], data["velocities"], dice)

    def write(self, path: Path) -> None:
        # JSON gives every float back as it was.
        data = {"neurons": self.neurons, "velocities": self.velocities}
        path.write_text(json.dumps({**data, "dice": self.dice.getstate()}))

    def judge(self, x: float, y: float, label: int) -> tuple[list[float], float]:
        """How active each neuron is, and by how much the answer is wrong, between -1 and 1."""
        active = [math.tanh(a * x + b * y + c) for a, b, c, _ in self.neurons]
        output = sum(n[3] * h for n, h in zip(self.neurons, active, strict=True))
        return active, 1 / (1 + math.exp(-output)) - label

    def step(self) -> float:
        """Learn from one batch of points; its loss."""
        gradients = [[0.0] * 4 for _ in self.neurons]
        loss = 0.0
        for _ in range(BATCH):
            x, y, label = spiral(self.dice)
            active, wrong = self.judge(x, y, label)
            loss -= math.log(max(1 - abs(wrong), 1e-12)) / BATCH
            for neuron, gradient, h in zip(self.neurons, gradients, active, strict=True):
                back = wrong * neuron[3] * (1 - h * h)
                for index, part in enumerate((back * x, back * y, back, wrong * h)):
                    gradient[index] += part / BATCH
        for neuron, velocity, gradient in zip(
            self.neurons, self.velocities, gradients, strict=True
        ):
            for index in range(4):
                velocity[index] = MOMENTUM * velocity[index] - RATE * gradient[index]
                neuron[index] += velocity[index]
        return loss

    def fingerprint(self) -> str:
        text = " ".join(weight.hex() for neuron in self.neurons for weight in neuron)
        return hashlib.sha256(text.encode()).hexdigest()


def spiral(dice: random.Random) -> tuple[float, float, int]:
    """A point on one of two spirals, and which."""
    label = dice.randrange(2)
    along = dice.random() * 3
    angle = along * 2 + label * math.pi
    return along * math.cos(angle), along * math.sin(angle), label


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a network that can be preempted.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after a step")
    options = parser.parse_args()

    resume = checkpoint.resume_from()
    training = Training.read(resume / "training.json") if resume else Training.begin(options.seed)
    print(f"resumed from {resume.name}" if resume else "started anew", flush=True)

    for step in checkpoint.steps(options.steps, every=options.every):
        loss = training.step()
        if checkpoint.should_save():
            with checkpoint.saving() as directory:
                training.write(directory / "training.json")
            print(f"step {step + 1} of {options.steps}, loss {loss:.4f}, saved", flush=True)
        time.sleep(options.pause)

    print(f"weights {training.fingerprint()}")
    points = random.Random(0)
    wrong = [abs(training.judge(*spiral(points))[1]) for _ in range(500)]
    print(f"wrong by {sum(wrong) / len(wrong)!r} on average")


if __name__ == "__main__":
    main()
