//! The library, and what its answers mean.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_oxide::PdfDocument;
use pdf_oxide::converters::ConversionOptions;
use pdf_oxide::error::Error;

use crate::Failure;
use crate::frames::Problem;

/// Of a document that was opened; each is converted when it is asked for.
pub struct Pages {
    document: PdfDocument,
    options: ConversionOptions,
    next: usize,
    number: u32,
}

impl Pages {
    pub fn len(&self) -> u32 {
        self.number
    }
}

/// Lets the library make now what it makes with its first file, so that the file need not wait for it.
pub fn warm_up() {
    if let Ok(pages) = pages(one_line()) {
        pages.for_each(drop);
    }
}

fn one_line() -> Vec<u8> {
    const OBJECTS: [&str; 5] = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        "<</Length 35>>\nstream\nBT /F 12 Tf 72 700 Td (A line) Tj ET\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ];
    let (mut file, mut places) = ("%PDF-1.7\n".to_owned(), "0000000000 65535 f \n".to_owned());
    for (number, object) in (1..).zip(OBJECTS) {
        places.push_str(&format!("{:010} 00000 n \n", file.len()));
        file.push_str(&format!("{number} 0 obj\n{object}\nendobj\n"));
    }
    let (table, size) = (file.len(), OBJECTS.len() + 1);
    file.push_str(&format!(
        "xref\n0 {size}\n{places}trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{table}\n%%EOF\n"
    ));
    file.into_bytes()
}

/// Opens the file.
pub fn pages(bytes: Vec<u8>) -> Result<Pages, Failure> {
    guarded("the file", || {
        let document = PdfDocument::from_bytes(bytes)?;
        // Many files are encrypted without a password.
        if document.is_encrypted() && !document.is_authenticated() {
            return Err(Error::EncryptedPdf);
        }
        let number = document.page_count()?;
        if number == 0 && !has_page_tree(&document)? {
            return Err(Error::InvalidPdf("its pages are not there".to_owned()));
        }
        Ok((document, number))
    })
    .and_then(|(document, number)| match u32::try_from(number) {
        Ok(0) => Err((Problem::NoPages, "the PDF has no pages".to_owned())),
        Ok(number) => Ok(Pages { document, options: options(), next: 0, number }),
        Err(_) => Err((Problem::Invalid, format!("the PDF says that it has {number} pages"))),
    })
}

/// An empty tree is one thing; a file in which none is found is another.
fn has_page_tree(document: &PdfDocument) -> Result<bool, Error> {
    let catalog = document.catalog()?;
    let Some(pages) = catalog.as_dict().and_then(|catalog| catalog.get("Pages")) else { return Ok(false) };
    Ok(document.resolve_object(pages)?.as_dict().is_some())
}

fn options() -> ConversionOptions {
    ConversionOptions { detect_headings: true, extract_tables: true, include_images: false, ..Default::default() }
}

impl Iterator for Pages {
    type Item = Result<String, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.next;
        if u32::try_from(page).is_ok_and(|page| page >= self.number) {
            return None;
        }
        self.next += 1;
        Some(guarded(&format!("page {}", page + 1), || self.document.to_markdown(page, &self.options)))
    }
}

/// A panic of the library is one more way of its to say that the file is broken.
fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Error::EncryptedPdf)) => {
            Err((Problem::Password, "the PDF needs a password: save it without one".to_owned()))
        }
        Ok(Err(error)) => Err((Problem::Invalid, format!("{what} cannot be read: {error}"))),
        Err(panic) => Err((Problem::Invalid, format!("{what} cannot be read: {}", words_of(panic.as_ref())))),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the converter stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_reads_what_it_is_warmed_up_with() {
        let pages: Vec<_> = pages(one_line()).unwrap().collect();
        assert_eq!(pages.len(), 1);
        assert_eq!(pages[0].as_ref().unwrap().trim(), "A line");
    }
}
