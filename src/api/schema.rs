//! From what schemars derives to what Kubernetes takes without a warning, and rules that several kinds share.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::Rule;
use serde_json::{Map, Value};

#[derive(Debug, thiserror::Error)]
#[error("the definition of a kind is not one that Kubernetes knows")]
pub struct SchemaError(#[from] serde_json::Error);

/// Any text but U+0000, which Postgres cannot store: stripped there, one name would become another.
pub(super) const NO_NUL: &str = r"^[^\x00]*$";
pub(super) const UUID: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";

/// One rule for each field, on their parent: a rule on an optional field itself would not see it come and go.
pub(super) fn immutable(required: &[&str], optional: &[&str]) -> Vec<Rule> {
    let required = required.iter().map(|field| {
        Rule::new(format!("self.{field} == oldSelf.{field}"))
            .message(format!("{field} cannot be changed; make a new resource instead").as_str())
            .field_path(format!(".{field}"))
    });
    let optional = optional.iter().map(|field| {
        let condition = format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        );
        Rule::new(condition)
            .message(format!("{field} cannot be changed, added or removed; make a new resource instead").as_str())
            .field_path(format!(".{field}"))
    });
    required.chain(optional).collect()
}

/// Drops what Kubernetes does not know or need. Without `nullable`, the API server takes an explicit null for an absent
/// field, so that it escapes no rule.
pub(super) fn finish(definition: CustomResourceDefinition) -> Result<CustomResourceDefinition, SchemaError> {
    let mut value = serde_json::to_value(definition)?;
    if let Some(versions) = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for version in versions {
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                simplify(schema);
            }
        }
    }
    Ok(serde_json::from_value(value)?)
}

fn simplify(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("nullable");
    fields.remove("title");
    if let Some(Value::Array(names)) = fields.get_mut("enum") {
        names.retain(|name| !name.is_null());
    }
    name_format(fields);
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    for field in ["properties", "items"] {
        match fields.get_mut(field) {
            Some(Value::Object(properties)) if field == "properties" => properties.values_mut().for_each(simplify),
            Some(items) => simplify(items),
            None => {}
        }
    }
}

/// Bounds say that a number is not negative; the format must be one that OpenAPI knows.
fn name_format(fields: &mut Map<String, Value>) {
    let known = match fields.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "uint32") => "int32",
        Some("uint64" | "uint") => "int64",
        Some(_) | None => return,
    };
    fields.insert("format".to_owned(), known.into());
}

/// A definition as a person would write it: the bounds of whole numbers are whole numbers.
pub fn plain_json(definition: &CustomResourceDefinition) -> Result<Value, SchemaError> {
    let mut value = serde_json::to_value(definition)?;
    write_whole(&mut value);
    Ok(value)
}

fn write_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Above it, not every whole number is one of its own.
            let whole =
                number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_991.0);
            if let Some(whole) = whole.and_then(|whole| whole.to_string().parse::<i64>().ok()) {
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole),
        Value::Object(fields) => fields.values_mut().for_each(write_whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
