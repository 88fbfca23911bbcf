#!/usr/bin/env python3
"""Writes the log of a harbour that does not exist, as markdown: a chapter a day, no two alike, the same every time.

usage: logbook.py DAYS
"""

import random
import sys

SHIPS = ["Ada Brandt", "Baltic Heron", "Cormorant Bay", "Elsa Marit", "Fjord Trader", "Gannet Star", "Hansa Linde",
         "Isle of Unst", "Juno Castle", "Kittiwake", "Lady Thorsen", "Meridian Grace", "Nordic Plover", "Orla Quay"]
CARGO = ["timber", "paper rolls", "refrigerated fruit", "machine parts", "grain", "empty boxes", "steel coils",
         "salted fish", "wind turbine blades", "fertiliser"]
HANDS = ["Harbour Master Ines Falk", "Pilot Oskar Rehm", "Foreman Mette Lund", "Planner Tomas Brae", "Pilot Yara Holt"]
WEATHER = ["fog until ten", "a steady north wind", "rain in squalls", "clear and cold", "a swell from the west"]
ARRIVAL = [
    "{ship} took berth {berth} at {hour:02}:{minute:02} with {boxes} containers of {cargo}.",
    "At {hour:02}:{minute:02} {hand} brought {ship} to berth {berth}; {boxes} containers of {cargo} were aboard.",
    "{ship} waited {wait} minutes at the roads and came to berth {berth} at {hour:02}:{minute:02} carrying {cargo}.",
]
WORK = [
    "Crane {crane} moved {rate} boxes an hour, {judgement} than the plan had said.",
    "{hand} put crane {crane} on {ship}, since the quay behind berth {berth} was full.",
    "The stack in block {block} reached {tiers} tiers, so {boxes} boxes went to block {other} instead.",
    "Trucks queued for {wait} minutes at gate {gate} until {hand} opened a second lane.",
    "A reach stacker stood still for {wait} minutes; its boxes were given to crane {crane} and none was moved twice.",
]
CLOSE = [
    "{ship} left {late} minutes late and the berth was free for the next tide.",
    "{hand} signed for {boxes} boxes and found no seal broken.",
    "The night shift took over {count} open moves from the day shift, each with its number.",
]


def sentence(rng, forms):
    block, other = rng.sample("ABCDEFGH", 2)
    return rng.choice(forms).format(
        ship=rng.choice(SHIPS), cargo=rng.choice(CARGO), hand=rng.choice(HANDS), berth=rng.randint(1, 9),
        hour=rng.randint(0, 23), minute=rng.randint(0, 59), boxes=rng.randint(12, 940), wait=rng.randint(4, 180),
        crane=rng.randint(1, 12), rate=rng.randint(14, 38), judgement=rng.choice(["better", "worse", "no other"]),
        block=block, other=other, tiers=rng.randint(2, 6), gate=rng.randint(1, 4), late=rng.randint(0, 95),
        count=rng.randint(3, 60)).replace("no other than", "just as")


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    rng = random.Random(1)
    print(f"# Log of Port Aurelia, {sys.argv[1]} days\n")
    for day in range(1, int(sys.argv[1]) + 1):
        print(f"## Day {day}\n\nThe day began with {rng.choice(WEATHER)}.", end=" ")
        print(" ".join(sentence(rng, ARRIVAL) for _ in range(rng.randint(4, 6))) + "\n")
        for _ in range(3):
            print(" ".join(sentence(rng, WORK) for _ in range(rng.randint(4, 6))) + "\n")
        print(" ".join(sentence(rng, CLOSE) for _ in range(3)) + "\n")


if __name__ == "__main__":
    main()
