//! Words that say nothing of what a text is about: of English, German, French and Spanish.

/// In the order of their bytes.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "aber", "about", "above", "after", "again", "against", "al", "all", "alle", "allem", "allen", "aller",
    "alles", "als", "also", "although", "always", "am", "an", "and", "another", "ante", "any", "are", "around", "as",
    "at", "au", "auch", "auf", "aus", "aux", "avec", "back", "be", "because", "been", "before", "bei", "beim",
    "being", "below", "between", "bis", "both", "but", "by", "can", "cannot", "ce", "ces", "cette", "comme", "como",
    "con", "could", "cuando", "da", "damit", "dann", "dans", "das", "dass", "de", "dein", "del", "dem", "den", "denn",
    "der", "des", "desde", "did", "die", "dies", "diese", "diesem", "diesen", "dieser", "dieses", "do", "doch",
    "does", "doing", "donde", "dort", "down", "du", "durch", "during", "each", "ein", "eine", "einem", "einen",
    "einer", "eines", "either", "el", "ella", "elle", "else", "en", "entre", "er", "era", "es", "est", "esta", "este",
    "esto", "está", "et", "etwas", "euch", "even", "ever", "every", "few", "first", "for", "from", "fue", "further",
    "für", "gegen", "get", "given", "go", "ha", "had", "has", "hasta", "hat", "hatte", "have", "having", "hay", "he",
    "her", "here", "hers", "hier", "him", "his", "how", "however", "i", "ich", "if", "ihm", "ihn", "ihr", "ihre",
    "il", "ils", "im", "in", "ins", "into", "is", "ist", "it", "its", "itself", "ja", "je", "jede", "jeder", "jedes",
    "just", "kann", "kein", "keine", "können", "la", "las", "last", "le", "least", "les", "less", "let", "leur",
    "like", "lo", "los", "lui", "made", "mais", "make", "many", "may", "me", "mehr", "mein", "mi", "might", "mit",
    "more", "most", "much", "muss", "must", "muy", "my", "más", "même", "nach", "ne", "near", "need", "neither",
    "never", "new", "next", "nicht", "no", "noch", "nor", "nos", "not", "nous", "now", "nun", "nur", "o", "ob",
    "oder", "of", "off", "often", "ohne", "on", "once", "one", "only", "ont", "or", "other", "ou", "our", "out",
    "over", "own", "où", "par", "para", "pas", "per", "pero", "plus", "por", "porque", "pour", "qu", "que", "qui",
    "rather", "sa", "same", "sans", "se", "see", "sehr", "sein", "seine", "ser", "ses", "several", "shall", "she",
    "should", "si", "sich", "sie", "sin", "since", "sind", "so", "sobre", "soll", "some", "son", "sondern", "sont",
    "still", "su", "such", "sur", "sus", "también", "te", "than", "that", "the", "their", "them", "then", "there",
    "therefore", "these", "they", "this", "those", "though", "three", "through", "thus", "to", "too", "tu", "two",
    "um", "un", "una", "und", "under", "une", "uno", "uns", "unter", "until", "up", "upon", "us", "use", "used",
    "using", "very", "via", "vom", "von", "vor", "vous", "war", "waren", "was", "we", "weil", "well", "wenn",
    "werden", "were", "what", "when", "where", "whether", "which", "while", "who", "whom", "whose", "why", "wie",
    "wieder", "will", "wir", "wird", "with", "within", "without", "wo", "would", "wurde", "wurden", "y", "ya", "yes",
    "yet", "you", "your", "zu", "zum", "zur", "zwischen", "à", "été", "être", "über",
];

/// Given in lower case.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_found_in() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && is_stop_word("für") && is_stop_word("où"));
        assert!(!is_stop_word("postgres") && !is_stop_word("The"));
    }
}
