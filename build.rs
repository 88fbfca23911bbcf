//! Lists `migrations/*.sql` for `store::migrate`, so that a file that is there is a file that is applied.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=migrations");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let directory = Path::new(&root).join("migrations");

    let mut names: Vec<String> = fs::read_dir(&directory)
        .expect("migrations/ is there")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"))
        .filter_map(|name| name.strip_suffix(".sql").map(str::to_owned))
        .collect();
    names.sort();

    let mut list = "&[\n".to_owned();
    for (index, name) in names.iter().enumerate() {
        let version = index + 1;
        // Four digits without a gap: two branches that each add the next number are found here, not in a database.
        assert!(name.starts_with(&format!("{version:04}_")), "migrations/{name}.sql should be number {version:04}");
        let path = directory.join(format!("{name}.sql"));
        writeln!(list, "Migration {{ version: {version}, name: {name:?}, sql: include_str!({path:?}) }},")
            .expect("writing to a string");
    }
    list.push(']');
    fs::write(Path::new(&out).join("migrations.rs"), list).expect("OUT_DIR can be written");
}
