//! Why work fails: a closed set of classes, which of them a retry can help, and what a person should do.

use super::closed_set::closed_set;

closed_set! {
    pub enum FailureClass("failure class") {
        TimeoutPhaseConvert = "timeout_phase_convert",
        TimeoutPhaseExtract = "timeout_phase_extract",
        ProviderUnavailable = "provider_unavailable",
        Interrupted = "interrupted",
        Unknown = "unknown",
        /// Three timeouts in a row without progress.
        CircuitBreaker = "circuit_breaker",
        DocumentTooLarge = "document_too_large",
        InvalidDocument = "invalid_document",
        PasswordRequired = "password_required",
        NoTextLayer = "no_text_layer",
        EmptyDocument = "empty_document",
        EmbeddingLimit = "embedding_limit",
        GraphMerge = "graph_merge",
        ProviderMisconfigured = "provider_misconfigured",
        LlmUnsupportedParam = "llm_unsupported_param",
        SourceForbidden = "source_forbidden",
        SourceNotFound = "source_not_found",
        UnsupportedType = "unsupported_type",
        DocumentDeleted = "document_deleted",
        /// Five leases ran out.
        WorkerLost = "worker_lost",
        Cancelled = "cancelled",
    }
}

impl FailureClass {
    /// Trying again without a change cannot help.
    pub const fn is_permanent(self) -> bool {
        match self {
            FailureClass::TimeoutPhaseConvert
            | FailureClass::TimeoutPhaseExtract
            | FailureClass::ProviderUnavailable
            | FailureClass::Interrupted
            | FailureClass::Unknown => false,
            FailureClass::CircuitBreaker
            | FailureClass::DocumentTooLarge
            | FailureClass::InvalidDocument
            | FailureClass::PasswordRequired
            | FailureClass::NoTextLayer
            | FailureClass::EmptyDocument
            | FailureClass::EmbeddingLimit
            | FailureClass::GraphMerge
            | FailureClass::ProviderMisconfigured
            | FailureClass::LlmUnsupportedParam
            | FailureClass::SourceForbidden
            | FailureClass::SourceNotFound
            | FailureClass::UnsupportedType
            | FailureClass::DocumentDeleted
            | FailureClass::WorkerLost
            | FailureClass::Cancelled => true,
        }
    }

    /// Counts towards the circuit breaker.
    pub const fn is_timeout(self) -> bool {
        matches!(self, FailureClass::TimeoutPhaseConvert | FailureClass::TimeoutPhaseExtract)
    }

    pub const fn recommended_action(self) -> RecommendedAction {
        match self {
            FailureClass::TimeoutPhaseConvert | FailureClass::CircuitBreaker => RecommendedAction::ReprocessEdgeparse,
            FailureClass::TimeoutPhaseExtract => RecommendedAction::RetryFasterModel,
            FailureClass::ProviderUnavailable => RecommendedAction::ReduceConcurrencyOrCheckProvider,
            FailureClass::Interrupted => RecommendedAction::Reprocess,
            FailureClass::Unknown => RecommendedAction::Retry,
            FailureClass::DocumentTooLarge => RecommendedAction::SplitDocument,
            FailureClass::InvalidDocument
            | FailureClass::PasswordRequired
            | FailureClass::NoTextLayer
            | FailureClass::EmptyDocument => RecommendedAction::FixDocument,
            FailureClass::EmbeddingLimit => RecommendedAction::RetryOrSupport,
            FailureClass::GraphMerge => RecommendedAction::ReprocessFull,
            FailureClass::ProviderMisconfigured => RecommendedAction::ConfigureProviderCredentials,
            FailureClass::LlmUnsupportedParam => RecommendedAction::OmitParameter,
            FailureClass::SourceForbidden | FailureClass::SourceNotFound => RecommendedAction::FixSource,
            FailureClass::UnsupportedType => RecommendedAction::CheckWorkerImage,
            FailureClass::DocumentDeleted => RecommendedAction::FinishDeleteOrReupload,
            FailureClass::WorkerLost => RecommendedAction::CheckWorkerResources,
            FailureClass::Cancelled => RecommendedAction::None,
        }
    }
}

closed_set! {
    pub enum RecommendedAction("recommended action") {
        ReprocessEdgeparse = "reprocess_edgeparse",
        RetryFasterModel = "retry_faster_model",
        ReduceConcurrencyOrCheckProvider = "reduce_concurrency_or_check_provider",
        Reprocess = "reprocess",
        Retry = "retry",
        SplitDocument = "split_document",
        FixDocument = "fix_document",
        RetryOrSupport = "retry_or_support",
        ReprocessFull = "reprocess_full",
        ConfigureProviderCredentials = "configure_provider_credentials",
        OmitParameter = "omit_parameter",
        FixSource = "fix_source",
        CheckWorkerImage = "check_worker_image",
        FinishDeleteOrReupload = "finish_delete_or_reupload",
        CheckWorkerResources = "check_worker_resources",
        None = "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [(&str, bool, &str); 21] = [
        ("timeout_phase_convert", false, "reprocess_edgeparse"),
        ("timeout_phase_extract", false, "retry_faster_model"),
        ("provider_unavailable", false, "reduce_concurrency_or_check_provider"),
        ("interrupted", false, "reprocess"),
        ("unknown", false, "retry"),
        ("circuit_breaker", true, "reprocess_edgeparse"),
        ("document_too_large", true, "split_document"),
        ("invalid_document", true, "fix_document"),
        ("password_required", true, "fix_document"),
        ("no_text_layer", true, "fix_document"),
        ("empty_document", true, "fix_document"),
        ("embedding_limit", true, "retry_or_support"),
        ("graph_merge", true, "reprocess_full"),
        ("provider_misconfigured", true, "configure_provider_credentials"),
        ("llm_unsupported_param", true, "omit_parameter"),
        ("source_forbidden", true, "fix_source"),
        ("source_not_found", true, "fix_source"),
        ("unsupported_type", true, "check_worker_image"),
        ("document_deleted", true, "finish_delete_or_reupload"),
        ("worker_lost", true, "check_worker_resources"),
        ("cancelled", true, "none"),
    ];

    #[test]
    fn each_class_is_permanent_and_recommends_as_its_row_says() {
        assert_eq!(ROWS.len(), FailureClass::ALL.len());
        for (name, permanent, action) in ROWS {
            let class = FailureClass::parse(name).unwrap();
            assert_eq!(class.as_str(), name);
            assert_eq!(class.is_permanent(), permanent, "{name}");
            assert_eq!(class.recommended_action().as_str(), action, "{name}");
        }
    }

    #[test]
    fn every_recommended_action_belongs_to_a_class() {
        for action in RecommendedAction::ALL {
            assert_eq!(RecommendedAction::parse(action.as_str()), Ok(*action));
            assert!(FailureClass::ALL.iter().any(|class| class.recommended_action() == *action));
        }
    }

    #[test]
    fn only_the_two_phase_timeouts_are_timeouts() {
        let timeouts: Vec<_> = FailureClass::ALL.iter().filter(|class| class.is_timeout()).collect();
        assert_eq!(timeouts, [&FailureClass::TimeoutPhaseConvert, &FailureClass::TimeoutPhaseExtract]);
    }
}
