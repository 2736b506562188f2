//! A place in a file: the value there, what is around it, and the provenance that covers it.

use crate::FrameError;
use serde_json::Value;
use std::path::Path;

/// One row of a table, or the outcome itself.
#[derive(Debug)]
pub(super) struct Row<'a, 'p> {
    pub(super) file: &'a Path,
    pub(super) value: &'a Value,
    /// Of the nearest object around the value.
    provenance: Option<&'a Value>,
    pub(super) at: String,
    /// For an entry of a map.
    pub(super) key: Option<&'a str>,
    /// Its place in the list.
    pub(super) index: usize,
    parent: Option<&'p Row<'a, 'p>>,
}

/// A value that a path leads to.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) file: &'a Path,
    pub(super) value: &'a Value,
    /// Of the nearest object around it.
    pub(super) provenance: Option<&'a Value>,
    pub(super) at: String,
}

impl<'a, 'p> Row<'a, 'p> {
    /// A whole file, or a field of it.
    pub(super) fn root(file: &'a Path, value: &'a Value, at: &str) -> Self {
        Self { file, value, provenance: None, at: at.to_owned(), key: None, index: 0, parent: None }
    }

    /// What lies at a path; `None` where a field on the way is absent or null.
    pub(super) fn find(&self, path: &str) -> Result<Option<Found<'a>>, FrameError> {
        let (mut row, mut path) = (self, path);
        if let Some(rest) = path.strip_prefix('/') {
            while let Some(parent) = row.parent {
                row = parent;
            }
            path = rest;
        }
        while let (Some(rest), Some(parent)) = (path.strip_prefix('^'), row.parent) {
            (row, path) = (parent, rest);
        }
        let mut found =
            Found { file: row.file, value: row.value, provenance: row.provenance, at: row.at.clone() };
        if path == "@value" {
            return Ok(Some(found));
        }
        for field in path.trim_end_matches("{}").split('.') {
            let Value::Object(map) = found.value else { return Err(found.expected("an object")) };
            found.provenance = map.get("provenance").filter(|p| p.is_object()).or(found.provenance);
            match map.get(field) {
                None | Some(Value::Null) => return Ok(None),
                Some(value) => found.value = value,
            }
            if !found.at.is_empty() {
                found.at.push('.');
            }
            found.at.push_str(field);
        }
        Ok(Some(found))
    }

    /// The rows of an array, or of a map's entries where the path ends in `{}`; none where there is no such field.
    pub(super) fn children<'s>(&'s self, path: &str) -> Result<Vec<Row<'a, 's>>, FrameError> {
        let Some(found) = self.find(path)? else { return Ok(Vec::new()) };
        let child = |index, value, key: Option<&'a str>| Row {
            file: found.file,
            value,
            provenance: found.provenance,
            at: key.map_or_else(|| format!("{}[{index}]", found.at), |k| format!("{}.{k}", found.at)),
            key,
            index,
            parent: Some(self),
        };
        match found.value {
            Value::Object(map) if path.ends_with("{}") => {
                Ok(map.iter().enumerate().map(|(i, (k, v))| child(i, v, Some(k))).collect())
            }
            Value::Array(items) if !path.ends_with("{}") => {
                Ok(items.iter().enumerate().map(|(i, v)| child(i, v, None)).collect())
            }
            _ => Err(found.expected(if path.ends_with("{}") { "an object" } else { "a list" })),
        }
    }
}

impl Found<'_> {
    /// The error that it is something else.
    pub(super) fn expected(&self, what: &str) -> FrameError {
        let is = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) | Value::Number(_) => self.value.to_string(),
            Value::String(text) => format!("`{text}`"),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.damaged(format!("{is}; expected {what}"))
    }

    pub(super) fn damaged(&self, message: String) -> FrameError {
        FrameError::damaged(self.file, if self.at.is_empty() { "." } else { &self.at }, message)
    }

    pub(super) fn text(&self) -> Result<&str, FrameError> {
        self.value.as_str().ok_or_else(|| self.expected("text"))
    }

    pub(super) fn number(&self) -> Result<f64, FrameError> {
        self.value.as_f64().ok_or_else(|| self.expected("a number"))
    }

    pub(super) fn count(&self) -> Result<i64, FrameError> {
        self.value.as_i64().ok_or_else(|| self.expected("a whole number"))
    }

    pub(super) fn flag(&self) -> Result<bool, FrameError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// A list of strings.
    pub(super) fn list(&self) -> Result<Vec<&str>, FrameError> {
        let items = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        items.iter().map(|item| item.as_str().ok_or_else(|| self.expected("a list of text"))).collect()
    }

    /// A map of scalars, as text.
    pub(super) fn scalars(&self) -> Result<Vec<(&str, String)>, FrameError> {
        let map = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        map.iter()
            .map(|(key, value)| match value {
                Value::String(text) => Ok((key.as_str(), text.clone())),
                Value::Bool(_) | Value::Number(_) => Ok((key.as_str(), value.to_string())),
                _ => Err(self.expected("an object of text, numbers, true and false")),
            })
            .collect()
    }

    /// A list of names, each with how many there are of it: `[["a", 1], ["b", 4]]`.
    pub(super) fn mix(&self) -> Result<String, FrameError> {
        let wrong = || self.expected("a list of names with counts");
        let items = self.value.as_array().ok_or_else(wrong)?;
        let parts: Result<Vec<String>, FrameError> = items
            .iter()
            .map(|item| {
                let name = item.get(0).and_then(Value::as_str).ok_or_else(wrong)?;
                let count = item.get(1).and_then(Value::as_u64).ok_or_else(wrong)?;
                Ok(format!("{count} {name}"))
            })
            .collect();
        Ok(parts?.join(" + "))
    }
}
