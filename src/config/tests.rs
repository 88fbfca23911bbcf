use super::*;

fn url(text: &str) -> DatabaseUrl {
    text.parse().expect("a URL")
}

#[test]
fn listening_uses_the_same_server_unless_told_otherwise() {
    let args = DatabaseArgs { database_url: Some(url("postgres://pooler/sluice")), listen_database_url: None };
    assert_eq!(args.resolve().unwrap().listen_url.server(), "pooler:5432");

    let listen_database_url = Some(url("postgresql://server/sluice"));
    let args = DatabaseArgs { database_url: Some(url("postgres://pooler/sluice")), listen_database_url };
    assert_eq!(args.resolve().unwrap().listen_url.server(), "server:5432");
}

#[test]
fn a_missing_database_says_what_to_set() {
    let args = DatabaseArgs { database_url: None, listen_database_url: None };
    let error = args.resolve().unwrap_err().to_string();
    assert!(error.starts_with("DATABASE_URL is not set"), "{error}");
}

#[test]
fn whole_numbers_end_at_their_bounds() {
    assert_eq!(whole("7", 1, 7), Ok(7_u32));
    assert_eq!(whole(" 1 ", 1, 7), Ok(1_u32));
    assert_eq!(parse_count(&u64::MAX.to_string()), Ok(u64::MAX));
    for text in ["", "0", "8", "-1", "1.0", "1e3", "0x1", "99999999999999999999999"] {
        assert_eq!(whole(text, 1_u32, 7), Err(ValueError::Whole { min: 1, max: 7 }), "{text}");
    }
}
