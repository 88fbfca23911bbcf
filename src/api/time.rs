//! Times on the wire: whole seconds, so that what is read back equals what was written.

use chrono::{DateTime, SubsecRound, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(DateTime<Utc>);

impl Time {
    pub const fn get(self) -> DateTime<Utc> {
        self.0
    }
}

/// Cuts fractions of a second.
impl From<DateTime<Utc>> for Time {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.trunc_subsecs(0))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_the_wire_unchanged() {
        let time = Time::from(DateTime::from_timestamp(1_700_000_000, 999_999_999).unwrap());
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, r#""2023-11-14T22:13:20Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }
}
