//! How long and how often: what the figures are measured with, or a fraction of it for a look (`QUICK=1`).

pub struct Scale {
    pub quick: bool,
    pub repeats: usize,
    /// How often a worker converts the corpus in one repetition.
    pub corpus_rounds: usize,
    /// In each stage.
    pub cancels: usize,
}

impl Scale {
    pub fn from_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|value| value != "0" && !value.is_empty()) {
            Self { quick: true, repeats: 1, corpus_rounds: 2, cancels: 6 }
        } else {
            Self { quick: false, repeats: 3, corpus_rounds: 6, cancels: 100 }
        }
    }
}
