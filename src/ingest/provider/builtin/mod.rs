//! The provider that needs nothing: no network, no model files; the same text always gives the same answer.
//!
//! It finds what stands in the text by its form, and knows nothing of meaning: entities are names, identifiers and
//! repeated phrases, relations say that two of them stand in one sentence, and vectors are near when texts share words
//! and parts of words.

mod embedding;
mod extraction;
mod stop_words;
mod words;

pub use embedding::{DIMENSIONS, EMBEDDER, embed};
pub use extraction::{EXTRACTOR, extract};
