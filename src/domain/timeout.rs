//! How long a document may take, by its pages and by how it is converted. All values are seconds.

/// How a page becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    Text,
    VisionCloud,
    VisionLocal,
}

/// The bounds of both timeouts.
pub const TIMEOUT_MIN_SECS: u64 = 7_200;
pub const TIMEOUT_MAX_SECS: u64 = 86_400;
/// The lower bound of an override, far below the computed one: whoever sets it knows the documents.
pub const OVERRIDE_MIN_SECS: u64 = 60;

/// From here on a vision model slows down enough to need a reserve.
const VISION_RESERVE_FROM_PAGES: u64 = 200;
const PAGES_PER_EXTRACT: u64 = 16;
const SECS_PER_EXTRACT: u64 = 25;

/// What is known of a document before it is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentProfile {
    pages: u64,
    conversion: Conversion,
    /// Already within its bounds.
    override_secs: Option<u64>,
}

impl DocumentProfile {
    /// No pages count as one; `override_secs` replaces both timeouts, clamped to
    /// [`OVERRIDE_MIN_SECS`]..=[`TIMEOUT_MAX_SECS`].
    pub fn new(pages: u64, conversion: Conversion, override_secs: Option<u64>) -> Self {
        let override_secs = override_secs.map(|secs| secs.clamp(OVERRIDE_MIN_SECS, TIMEOUT_MAX_SECS));
        Self { pages: pages.max(1), conversion, override_secs }
    }

    /// The expected time of the conversion alone.
    pub const fn convert_secs(self) -> u64 {
        match self.conversion {
            Conversion::Text => (self.pages / 2).saturating_add(60),
            Conversion::VisionCloud => self.pages.saturating_mul(8).saturating_add(120),
            Conversion::VisionLocal => self.pages.saturating_mul(30).saturating_add(120),
        }
    }

    /// The expected time of the extraction alone.
    pub const fn extract_secs(self) -> u64 {
        self.pages.div_ceil(PAGES_PER_EXTRACT).saturating_mul(SECS_PER_EXTRACT)
    }

    /// The timeout of a `PdfProcessing` task.
    pub fn convert_timeout_secs(self) -> u64 {
        let convert = self.convert_secs();
        let reserve = match self.conversion {
            Conversion::VisionCloud | Conversion::VisionLocal if self.pages >= VISION_RESERVE_FROM_PAGES => convert / 4,
            Conversion::Text | Conversion::VisionCloud | Conversion::VisionLocal => 0,
        };
        self.bounded(convert.saturating_add(300).saturating_add(reserve))
    }

    /// The timeout of an `Insert` task.
    pub fn ingest_timeout_secs(self) -> u64 {
        self.bounded(self.extract_secs().saturating_add(600))
    }

    fn bounded(self, secs: u64) -> u64 {
        self.override_secs.unwrap_or(secs.clamp(TIMEOUT_MIN_SECS, TIMEOUT_MAX_SECS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(pages: u64, conversion: Conversion) -> DocumentProfile {
        DocumentProfile::new(pages, conversion, None)
    }

    #[test]
    fn six_hundred_and_three_pages_of_text_stay_at_the_floor() {
        let document = profile(603, Conversion::Text);
        assert_eq!(document.convert_secs(), 361);
        assert_eq!(document.extract_secs(), 950);
        assert_eq!(document.convert_timeout_secs(), 7_200);
        assert_eq!(document.ingest_timeout_secs(), 7_200);
    }

    #[test]
    fn ingest_leaves_its_floor_above_4224_pages() {
        assert_eq!(profile(4_224, Conversion::Text).ingest_timeout_secs(), 7_200);
        assert_eq!(profile(4_225, Conversion::Text).ingest_timeout_secs(), 7_225);
    }

    #[test]
    fn no_pages_count_as_one() {
        assert_eq!(profile(0, Conversion::VisionLocal), profile(1, Conversion::VisionLocal));
        assert_eq!(profile(0, Conversion::Text).convert_secs(), 60);
        assert_eq!(profile(0, Conversion::Text).extract_secs(), 25);
    }

    #[test]
    fn vision_costs_by_the_page_and_more_when_it_is_local() {
        assert_eq!(profile(100, Conversion::VisionCloud).convert_secs(), 920);
        assert_eq!(profile(100, Conversion::VisionLocal).convert_secs(), 3_120);
    }

    #[test]
    fn vision_gets_a_quarter_in_reserve_from_200_pages() {
        assert_eq!(profile(1_600, Conversion::VisionLocal).convert_timeout_secs(), 48_120 + 300 + 12_030);
        assert_eq!(profile(1_600, Conversion::VisionCloud).convert_timeout_secs(), 12_920 + 300 + 3_230);
        // 199 and 200 pages straddle the step: 6,090 + 300 is under the floor, 6,120 + 300 + 1,530 is over it.
        assert_eq!(profile(199, Conversion::VisionLocal).convert_timeout_secs(), 7_200);
        assert_eq!(profile(200, Conversion::VisionLocal).convert_timeout_secs(), 7_950);
    }

    #[test]
    fn text_gets_no_reserve() {
        assert_eq!(profile(20_000, Conversion::Text).convert_timeout_secs(), 60 + 10_000 + 300);
    }

    #[test]
    fn the_largest_document_stays_at_the_ceiling() {
        for conversion in [Conversion::Text, Conversion::VisionCloud, Conversion::VisionLocal] {
            let document = profile(u64::MAX, conversion);
            assert_eq!(document.convert_timeout_secs(), 86_400);
            assert_eq!(document.ingest_timeout_secs(), 86_400);
        }
    }

    #[test]
    fn an_override_replaces_both_timeouts_within_its_bounds() {
        for (given, expected) in [(0, 60), (59, 60), (60, 60), (900, 900), (86_400, 86_400), (u64::MAX, 86_400)] {
            let document = DocumentProfile::new(10_000, Conversion::VisionLocal, Some(given));
            assert_eq!(document.convert_timeout_secs(), expected);
            assert_eq!(document.ingest_timeout_secs(), expected);
        }
    }
}
