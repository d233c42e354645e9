"""One damaged copy after the other: is what changes an answer detected?"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cede.server.writer import Unsound, Writer
from cede.store import Store, StoreError
from tests.damage.damages import Damage, cuts, pages, random_damage
from tests.damage.history import History, make, read


def detected(folder: Path) -> str | None:
    """What a server that starts on these files says; None if it would serve."""
    store = Store(f"sqlite:///{folder / 'cede.db'}", anchor=folder / "anchor")
    try:
        store.migrate()
        store.take_over()
        Writer(store, store.load())
        findings = store.scrub(loaded=True)
        return "; ".join(findings) if findings else None
    except (StoreError, Unsound) as error:
        return str(error)
    finally:
        store.close()


def damages(
    histories: tuple[History, ...], files: int, seed: int
) -> Iterator[tuple[History, Damage]]:
    """At most so many: first a random choice of the systematic ones, then random ones."""
    chance = random.Random(seed)
    systematic = [(each, one) for each in histories for one in (*cuts(each), *pages(each))]
    chance.shuffle(systematic)
    most = files * 3 // 5
    yield from systematic[:most]
    for _ in range(files - min(most, len(systematic))):
        history = chance.choice(histories)
        yield history, random_damage(history, chance)


def run(scratch: Path, files: int, seed: int) -> Counter[str]:
    """Counts by outcome; what was missed is under its own words."""
    histories = make(scratch / "history")
    outcomes: Counter[str] = Counter()
    for number, (history, (words, damage)) in enumerate(damages(histories, files, seed)):
        folder = history.copy(scratch / "damaged")
        damage(folder)
        changed = read(folder, scratch / "read") != history.answers
        said = detected(folder)
        if changed and said is None:
            outcomes[f"MISSED: {words} of {history.folder.name} ({number})"] += 1
        else:
            outcomes[f"{'changed' if changed else 'same'}, {'refused' if said else 'served'}"] += 1
    return outcomes


def missed(outcomes: Counter[str]) -> list[str]:
    return [each for each in outcomes if each.startswith("MISSED")]
