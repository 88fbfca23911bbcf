//! Values on their way: text without U+0000 to Postgres, typed values back.

use std::borrow::Cow;

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};

use super::error::StoreError;
use crate::domain::UnknownName;

/// Postgres stores U+0000 neither in text nor in JSON; names, errors and messages from outside may hold it.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

pub(super) fn optional_text(given: Option<&str>) -> Option<Cow<'_, str>> {
    given.map(text)
}

/// The same for each key and string of a JSON value.
pub(super) fn json(value: &Value) -> Value {
    match value {
        Value::String(string) => Value::String(text(string).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(json).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (text(key).into_owned(), json(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// What is too large for the database's type is too large for the function, which says so.
pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(super) fn column<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(name).map_err(|error| not_understood(&error))
}

/// The same by its place, where there are many rows.
pub(super) fn at<'r, T>(row: &'r PgRow, place: usize) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(place).map_err(|error| not_understood(&error))
}

/// A number that is never negative.
pub(super) fn count<T: TryFrom<i64>>(row: &PgRow, name: &str) -> Result<T, StoreError> {
    let number: i64 = column(row, name)?;
    T::try_from(number).map_err(|_| not_understood(&format!("{name} is {number}")))
}

/// The same, of a column of 32 bits.
pub(super) fn small_count(row: &PgRow, name: &str) -> Result<u32, StoreError> {
    let number: i32 = column(row, name)?;
    u32::try_from(number).map_err(|_| not_understood(&format!("{name} is {number}")))
}

pub(super) fn optional_small_count(row: &PgRow, name: &str) -> Result<Option<u32>, StoreError> {
    let number: Option<i32> = column(row, name)?;
    number.map(u32::try_from).transpose().map_err(|_| not_understood(&format!("{name} is negative")))
}

/// A value of a closed set, by its name.
pub(super) fn named<T>(row: &PgRow, name: &str, parse: fn(&str) -> Result<T, UnknownName>) -> Result<T, StoreError> {
    parse(column(row, name)?).map_err(|unknown| not_understood(&unknown))
}

pub(super) fn optional_named<T>(
    row: &PgRow,
    name: &str,
    parse: fn(&str) -> Result<T, UnknownName>,
) -> Result<Option<T>, StoreError> {
    let given: Option<&str> = column(row, name)?;
    given.map(parse).transpose().map_err(|unknown| not_understood(&unknown))
}

pub(super) fn rows<T>(rows: &[PgRow], read: impl Fn(&PgRow) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(read).collect()
}

/// This program and the schema do not fit together.
pub(super) fn not_understood(problem: &dyn std::fmt::Display) -> StoreError {
    StoreError::Bug { cause: format!("the answer of the database was not understood: {problem}"), driver: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_loses_what_postgres_cannot_store_and_nothing_else() {
        assert_eq!(text("a\0b\0"), "ab");
        assert!(matches!(text("ä\u{1}\\u0000"), Cow::Borrowed("ä\u{1}\\u0000")));
        assert_eq!(optional_text(None), None);
    }

    #[test]
    fn json_loses_it_at_every_depth() {
        let given = json!({ "k\0": ["a\0", { "b": "\0" }, 1, null, true] });

        assert_eq!(json(&given), json!({ "k": ["a", { "b": "" }, 1, null, true] }));
    }

    #[test]
    fn number_too_large_for_the_database_stays_too_large() {
        assert_eq!(int(7), 7);
        assert_eq!(int(u32::MAX), i32::MAX);
    }
}
