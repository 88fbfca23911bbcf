use proptest::prelude::*;

use super::*;

fn request(provider: Option<&str>) -> CapacityRequest {
    CapacityRequest {
        cpus: 8,
        slots: None,
        ingest_cap: None,
        lifecycle_cap: None,
        extract_provider: ExtractProvider::resolve([provider]),
        allow_local_high_concurrency: false,
    }
}

fn resolve(change: impl FnOnce(&mut CapacityRequest), provider: Option<&str>) -> Capacity {
    let mut request = request(provider);
    change(&mut request);
    Capacity::resolve(request)
}

#[test]
fn slots_default_to_four_per_cpu_and_at_least_four() {
    for (cpus, slots) in [(0, 4), (1, 4), (2, 8), (8, 32), (u32::MAX, u32::MAX)] {
        assert_eq!(resolve(|r| r.cpus = cpus, None).slots, slots);
    }
}

#[test]
fn the_ingest_cap_defaults_to_three_quarters_of_the_slots_and_at_least_one() {
    for (slots, cap) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (8, 6), (32, 24), (u32::MAX, 3_221_225_471)] {
        let capacity = resolve(|r| r.slots = Some(slots), None);
        assert_eq!(capacity.ingest_cap, Cap::new(cap), "{slots} slots");
    }
}

#[test]
fn the_lifecycle_cap_defaults_to_the_ingest_cap() {
    assert_eq!(resolve(|_| (), None).lifecycle_cap, Cap::new(24));
    assert_eq!(resolve(|r| r.ingest_cap = Some(Cap::new(7)), None).lifecycle_cap, Cap::new(7));
    assert_eq!(resolve(|r| r.ingest_cap = Some(Cap::NONE), None).lifecycle_cap, Cap::NONE);
}

#[test]
fn explicit_caps_hold_for_a_cloud_provider() {
    let capacity = resolve(
        |r| {
            r.ingest_cap = Some(Cap::new(500));
            r.lifecycle_cap = Some(Cap::NONE);
        },
        Some("openai"),
    );
    assert_eq!(capacity.ingest_cap, Cap::new(500));
    assert_eq!(capacity.lifecycle_cap, Cap::NONE);
    assert_eq!(capacity.clamp, None);
}

#[test]
fn a_local_provider_clamps_what_is_unset() {
    for provider in ["ollama", "lmstudio", "lm-studio", "lm_studio", " Ollama "] {
        let capacity = resolve(|_| (), Some(provider));
        assert_eq!(capacity.slots, 4, "{provider}");
        assert_eq!(capacity.ingest_cap, Cap::new(2), "{provider}");
        assert_eq!(capacity.lifecycle_cap, Cap::new(4), "{provider}");
        assert!(capacity.clamp.is_some(), "{provider}");
    }
}

#[test]
fn a_local_provider_clamps_slots_from_one_to_four() {
    for (asked, slots) in [(0, 1), (1, 1), (3, 3), (4, 4), (5, 4), (u32::MAX, 4)] {
        assert_eq!(resolve(|r| r.slots = Some(asked), Some("ollama")).slots, slots);
    }
}

#[test]
fn a_local_provider_clamps_the_ingest_cap_from_one_to_two_and_leaves_zero() {
    for (asked, cap) in [(0, 0), (1, 1), (2, 2), (3, 2), (u32::MAX, 2)] {
        let capacity = resolve(|r| r.ingest_cap = Some(Cap::new(asked)), Some("ollama"));
        assert_eq!(capacity.ingest_cap, Cap::new(cap));
        assert_eq!(capacity.lifecycle_cap, Cap::new(4));
    }
}

#[test]
fn a_local_provider_clamps_the_lifecycle_cap_from_one_to_four_and_leaves_zero() {
    for (asked, cap) in [(0, 0), (1, 1), (4, 4), (5, 4), (u32::MAX, 4)] {
        let capacity = resolve(|r| r.lifecycle_cap = Some(Cap::new(asked)), Some("ollama"));
        assert_eq!(capacity.lifecycle_cap, Cap::new(cap));
    }
}

#[test]
fn one_slot_of_a_local_provider_has_an_ingest_cap_of_one() {
    assert_eq!(resolve(|r| r.slots = Some(1), Some("ollama")).ingest_cap, Cap::new(1));
}

#[test]
fn high_concurrency_lifts_the_clamp() {
    let capacity = resolve(|r| r.allow_local_high_concurrency = true, Some("ollama"));
    assert_eq!(capacity.slots, 32);
    assert_eq!(capacity.ingest_cap, Cap::new(24));
    assert_eq!(capacity.lifecycle_cap, Cap::new(24));
    assert_eq!(capacity.clamp, None);
}

#[test]
fn the_first_non_empty_provider_of_the_chain_wins() {
    let rows: [([Option<&str>; 4], Option<&str>); 8] = [
        ([Some("a"), Some("b"), Some("c"), Some("d")], Some("a")),
        ([None, Some("b"), Some("c"), Some("d")], Some("b")),
        ([None, None, Some("c"), Some("d")], Some("c")),
        ([None, None, None, Some("d")], Some("d")),
        ([None, None, None, None], None),
        ([Some(""), Some("  "), None, Some("d")], Some("d")),
        ([Some(""), None, None, None], None),
        ([Some(" OLLAMA "), None, None, Some("openai")], Some("ollama")),
    ];
    for (chain, expected) in rows {
        let provider = ExtractProvider::resolve(chain);
        assert_eq!(provider.as_ref().map(ExtractProvider::name), expected, "{chain:?}");
    }
}

#[test]
fn a_cloud_model_with_a_local_extractor_still_clamps() {
    let extract_provider = ExtractProvider::resolve([Some("ollama"), None, Some("openai"), Some("openai")]);
    assert!(resolve(|r| r.extract_provider = extract_provider, None).clamp.is_some());
}

#[test]
fn a_local_model_with_a_cloud_extractor_does_not_clamp() {
    let extract_provider = ExtractProvider::resolve([Some("openai"), None, Some("ollama"), Some("ollama")]);
    assert_eq!(resolve(|r| r.extract_provider = extract_provider, None).clamp, None);
}

#[test]
fn a_clamp_names_its_provider_and_the_way_out() {
    let clamp = resolve(|_| (), Some("lmstudio")).clamp.unwrap().to_string();
    assert!(clamp.contains("lmstudio"), "{clamp}");
    assert!(clamp.contains("SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY=1"), "{clamp}");
}

#[test]
fn a_cap_leaves_free_what_is_not_running_and_never_less_than_nothing() {
    assert_eq!(Cap::new(3).free(0), Some(3));
    assert_eq!(Cap::new(3).free(3), Some(0));
    assert_eq!(Cap::new(3).free(u64::MAX), Some(0));
    assert_eq!(Cap::NONE.free(u64::MAX), None);
}

#[test]
fn only_the_policy_none_admits_work() {
    let admits: Vec<_> = Policy::ALL.iter().filter(|policy| policy.admits()).collect();
    assert_eq!(admits, [&Policy::None]);
}

#[test]
fn weights_are_whole_numbers_from_one_to_a_thousand() {
    for weight in [1, 2, 999, 1_000] {
        assert_eq!(i64::from(Weight::new(weight).unwrap().get()), weight);
    }
    for weight in [i64::MIN, -1, 0, 1_001, 65_537, i64::MAX] {
        let error = Weight::new(weight).unwrap_err().to_string();
        assert!(error.contains("from 1 to 1000"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_request_gives_at_least_one_slot_and_a_clamp_is_never_exceeded(
        cpus: u32,
        slots: Option<u32>,
        ingest_cap: Option<u32>,
        lifecycle_cap: Option<u32>,
        local: bool,
        allow_local_high_concurrency: bool,
    ) {
        let capacity = Capacity::resolve(CapacityRequest {
            cpus,
            slots,
            ingest_cap: ingest_cap.map(Cap::new),
            lifecycle_cap: lifecycle_cap.map(Cap::new),
            extract_provider: ExtractProvider::resolve([Some(if local { "ollama" } else { "openai" })]),
            allow_local_high_concurrency,
        });
        prop_assert!(capacity.slots >= 1);
        prop_assert_eq!(capacity.clamp.is_some(), local && !allow_local_high_concurrency);
        if capacity.clamp.is_some() {
            prop_assert!(capacity.slots <= 4);
            prop_assert!(capacity.ingest_cap.get() <= 2);
            prop_assert!(capacity.lifecycle_cap.get() <= 4);
        }
        if ingest_cap != Some(0) {
            prop_assert_ne!(capacity.ingest_cap, Cap::NONE);
        }
    }
}
