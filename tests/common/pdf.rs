//! Small PDFs of our own making.

use std::fmt::Write as _;

/// A PDF whose pages say these words.
pub fn pdf(pages: &[impl AsRef<str>]) -> Vec<u8> {
    let kids: String = (0..pages.len()).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Kids[{kids}]/Count {}>>", pages.len()),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
    ];
    for (page, words) in pages.iter().enumerate() {
        let text = format!("BT /F1 12 Tf 72 700 Td ({}) Tj ET", words.as_ref());
        objects.push(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {} 0 R>>",
            5 + 2 * page
        ));
        objects.push(format!("<</Length {}>>\nstream\n{text}\nendstream", text.len()));
    }
    let (mut file, mut offsets) = ("%PDF-1.7\n".to_owned(), Vec::new());
    for (number, body) in (1..).zip(objects) {
        offsets.push(file.len());
        let _ = write!(file, "{number} 0 obj\n{body}\nendobj\n");
    }
    let start = file.len();
    file.push_str(&format!("xref\n0 {}\n0000000000 65535 f \n", offsets.len() + 1));
    offsets.iter().for_each(|offset| file.push_str(&format!("{offset:010} 00000 n \n")));
    file.push_str(&format!("trailer\n<</Size {}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n", offsets.len() + 1));
    file.into_bytes()
}
