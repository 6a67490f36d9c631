//! What a description in OpenAPI is made of: that of the gateway's interface, and that of the operators'.

use serde_json::{Map, Value, json};

/// A parameter.
pub(crate) struct Parameter {
    /// As requests write it.
    name: &'static str,
    place: &'static str,
    is_required: bool,
    /// In JSON.
    schema: &'static str,
    meaning: &'static str,
}

/// One of the query, which may be left out.
pub(crate) const fn query(name: &'static str, schema: &'static str, meaning: &'static str) -> Parameter {
    Parameter {
        name,
        place: "query",
        is_required: false,
        schema,
        meaning,
    }
}

/// One in the path.
pub(crate) const fn path(name: &'static str, schema: &'static str, meaning: &'static str) -> Parameter {
    Parameter {
        place: "path",
        is_required: true,
        ..query(name, schema, meaning)
    }
}

/// One in the head, which may be left out.
pub(crate) const fn header(name: &'static str, schema: &'static str, meaning: &'static str) -> Parameter {
    Parameter {
        place: "header",
        ..query(name, schema, meaning)
    }
}

impl Parameter {
    /// The same, which has to be there.
    pub(crate) const fn required(self) -> Parameter {
        Parameter {
            is_required: true,
            ..self
        }
    }

    /// Its description.
    pub(crate) fn json(&self) -> Value {
        let schema: Value = serde_json::from_str(self.schema).unwrap_or_default();
        json!({
            "name": self.name, "in": self.place, "required": self.is_required, "schema": schema, "description": self.meaning,
        })
    }
}

/// Where a component of the document is.
pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// JSON of this schema, as what a body is.
pub(crate) fn content(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference("schemas", schema) } })
}

/// Says of an operation that it takes a body of this schema.
pub(crate) fn takes(operation: &mut Value, schema: &str) {
    if let Some(operation) = operation.as_object_mut() {
        let body = json!({ "required": true, "content": content(schema) });
        operation.insert("requestBody".to_owned(), body);
    }
}

/// An error, with these headers.
pub(crate) fn refusal(meaning: &str, headers: Value) -> Value {
    json!({ "description": meaning, "content": content("Error"), "headers": headers })
}

/// Headers by their names.
pub(crate) fn header_references<'n, 's: 'n>(names: impl Iterator<Item = &'n &'s str>) -> Value {
    let all: Map<String, Value> = names
        .map(|name| ((*name).to_owned(), reference("headers", name)))
        .collect();
    Value::Object(all)
}

/// The schemas in a text of YAML, which are those of `whose`.
pub(crate) fn schemas(text: &str, whose: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap_or_else(|error| {
        log::error!("the schemas of {whose} cannot be read: {error}");
        Value::Null
    })
}
