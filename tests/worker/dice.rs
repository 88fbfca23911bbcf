//! A seeded source of choices, so that a run can be repeated as far as the machine lets it.

use std::time::Duration;

pub struct Dice(u64);

impl Dice {
    /// `SLUICE_WORKER_SEED` takes the place of the seed that a test gives.
    pub fn new(seed: u64) -> Self {
        let seed = std::env::var("SLUICE_WORKER_SEED").ok().map_or(seed, |seed| seed.parse().expect("a number"));
        println!("SLUICE_WORKER_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `sides` - 1.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.roll(u64::try_from(from.len()).expect("few"));
        &from[usize::try_from(index).expect("few")]
    }

    /// Below the limit, in steps of 100 µs.
    pub fn moment(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(100 * self.roll(1 + u64::try_from(limit.as_micros()).expect("short") / 100))
    }
}
