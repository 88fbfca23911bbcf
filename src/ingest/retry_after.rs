//! When a server that says 429 wants to be asked again.

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// In seconds from now: a number, or a date. `None` for what is neither.
pub fn retry_after_secs(headers: &HeaderMap, now: DateTime<Utc>) -> Option<u32> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = said.parse::<f64>() {
        // Some servers send fractions; the database has its own bound above.
        return (secs >= 0.0).then(|| number_of(secs.ceil()));
    }
    let at = DateTime::parse_from_rfc2822(said).ok()?;
    u32::try_from((at.to_utc() - now).num_seconds().max(0)).ok()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded before")]
fn number_of(secs: f64) -> u32 {
    secs.min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dates_are_understood_and_nothing_else() {
        let now = DateTime::parse_from_rfc3339("2026-11-30T12:00:00Z").unwrap().to_utc();
        let rows = [
            ("0", Some(0)),
            (" 17 ", Some(17)),
            ("1.2", Some(2)),
            ("99999999999999", Some(u32::MAX)),
            ("Mon, 30 Nov 2026 12:01:30 GMT", Some(90)),
            ("Mon, 30 Nov 2026 11:59:00 GMT", Some(0)),
            ("-1", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ];
        for (said, expected) in rows {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, said.parse().unwrap())]);
            assert_eq!(retry_after_secs(&headers, now), expected, "{said:?}");
        }
        assert_eq!(retry_after_secs(&HeaderMap::new(), now), None);
    }
}
