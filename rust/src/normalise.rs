//! Messages as templates expect them. `as_sent` is what transformers 5.24 does; the rest makes the shapes
//! that API clients really send (string arguments, null or listed content) reach every template alike.

use serde_json::{Map, Value as Json};

/// What a template does with content given as a list of parts, by role.
#[derive(Clone, Copy, Default)]
pub struct PartsSupport {
    pub system: bool,
    pub user: bool,
    pub assistant: bool,
    pub tool: bool,
}

impl PartsSupport {
    fn of(&self, role: &str) -> bool {
        match role {
            "system" | "developer" => self.system,
            "assistant" => self.assistant,
            "tool" => self.tool,
            _ => self.user,
        }
    }
}

/// As transformers 5.24: keys with null are dropped, reasoning_content is also given as `thinking`.
pub fn as_transformers(message: &mut Map<String, Json>) {
    message.retain(|_, value| !value.is_null());
    if !message.contains_key("thinking") {
        if let Some(reasoning) = message.get("reasoning_content").cloned() {
            message.insert("thinking".into(), reasoning);
        }
    }
}

/// Content null, missing or an empty list is the empty text; text parts are joined where the template
/// does not know parts. All of these shapes give one prompt (FR-C3).
pub fn unify_content(message: &mut Map<String, Json>, supports: impl FnOnce() -> PartsSupport) {
    let Some(content) = message.get("content") else {
        // Where it would stand had it been sent: templates that print a message show the order.
        let place = message.keys().position(|k| k == "role").map_or(0, |i| i + 1);
        message.shift_insert(place, "content".into(), Json::from(""));
        return;
    };
    let Some(text) = content.as_array().and_then(|parts| join_text(parts)) else { return };
    let role = message.get("role").and_then(Json::as_str).unwrap_or("");
    if text.is_empty() || !supports().of(role) {
        message.insert("content".into(), text.into());
    }
}

/// The text of a list that holds text parts only.
fn join_text(parts: &[Json]) -> Option<String> {
    let mut joined = String::new();
    for part in parts {
        let text = match part {
            Json::String(text) => text,
            Json::Object(part) if part.get("type").and_then(Json::as_str).unwrap_or("text") == "text" => {
                part.get("text")?.as_str()?
            }
            _ => return None,
        };
        joined.push_str(text);
    }
    Some(joined)
}

/// Arguments given as the text of a JSON object become the object (FR-B1). True when any did.
pub fn parse_arguments(message: &mut Map<String, Json>) -> bool {
    let mut any = false;
    let Some(calls) = message.get_mut("tool_calls").and_then(Json::as_array_mut) else { return false };
    for call in calls {
        let Some(function) = call.get_mut("function").and_then(Json::as_object_mut) else { continue };
        let Some(text) = function.get("arguments").and_then(Json::as_str) else { continue };
        if let Ok(object @ Json::Object(_)) = serde_json::from_str::<Json>(text) {
            function.insert("arguments".into(), object);
            any = true;
        }
    }
    any
}
