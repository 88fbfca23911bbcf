//! Enums whose every value has one name on the wire, in SQL and in settings.

/// A name that is not in a closed set; prints what was given and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {given:?}: allowed are {}", allowed.join(", "))]
pub struct UnknownName {
    pub what: &'static str,
    /// As given, cut to [`UnknownName::GIVEN_MAX_CHARS`].
    pub given: String,
    pub allowed: Vec<&'static str>,
}

impl UnknownName {
    /// Enough to recognise a typing error, too little to flood a log line.
    pub const GIVEN_MAX_CHARS: usize = 64;

    pub(crate) fn new(what: &'static str, given: &str, allowed: Vec<&'static str>) -> Self {
        Self { what, given: given.chars().take(Self::GIVEN_MAX_CHARS).collect(), allowed }
    }
}

/// Defines an enum with `ALL`, `as_str`, `parse` (exact, case-sensitive) and `Display`.
macro_rules! closed_set {
    (
        $(#[$meta:meta])*
        pub enum $name:ident ($what:literal) {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }

            pub fn parse(name: &str) -> Result<Self, $crate::domain::UnknownName> {
                match name {
                    $( $text => Ok(Self::$variant), )+
                    _ => Err($crate::domain::UnknownName::new($what, name, vec![$( $text, )+])),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use closed_set;

#[cfg(test)]
mod tests {
    use super::*;

    closed_set! {
        pub enum Fruit("fruit") {
            Apple = "apple",
            Pear = "pear",
        }
    }

    #[test]
    fn every_name_parses_to_its_value() {
        for fruit in Fruit::ALL {
            assert_eq!(Fruit::parse(fruit.as_str()), Ok(*fruit));
        }
    }

    #[test]
    fn an_unknown_name_says_what_is_allowed() {
        let error = Fruit::parse("Apple").unwrap_err();
        assert_eq!(error.to_string(), r#"unknown fruit "Apple": allowed are apple, pear"#);
    }

    #[test]
    fn a_huge_unknown_name_is_cut_at_a_character() {
        let error = Fruit::parse(&"ü".repeat(10_000)).unwrap_err();
        assert_eq!(error.given, "ü".repeat(UnknownName::GIVEN_MAX_CHARS));
    }
}
