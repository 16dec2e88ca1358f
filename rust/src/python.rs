//! Python's text of a value: str(), repr(), json.dumps(), white space. Templates are written against
//! these, and one other character is another prompt.

use crate::pycompat::Generator;
use crate::sentinel;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Deeper values are refused: json.dumps and repr recurse in Python too.
const DEPTH_MAX: usize = 400;
/// An indent beyond this is a memory bomb, not a style.
const INDENT_MAX: usize = 256;

/// One value can hold another many times, so its text can be larger than any memory.
pub const TEXT_BYTES_MAX: usize = 1 << 25;

/// What str.isspace() and str.strip() call white space.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn check_size(bytes: usize) -> Result<(), Error> {
    match bytes > TEXT_BYTES_MAX {
        true => Err(invalid(format!("a text of more than {} MiB", TEXT_BYTES_MAX >> 20))),
        false => Ok(()),
    }
}

/// Stops minijinja's own text of a value at the limit.
struct Bounded<'a>(&'a mut String);

impl Write for Bounded<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        check_size(self.0.len() + s.len()).map_err(|_| std::fmt::Error)?;
        self.0.push_str(s);
        Ok(())
    }
}

/// Bytes of the texts of `items` one after the other, and some for each item; an error above the limit.
pub fn texts_size(items: impl Iterator<Item = Value>) -> Result<usize, Error> {
    const ITEM_BYTES: usize = 16;
    let mut bytes = 0usize;
    for item in items {
        bytes += ITEM_BYTES + match item.as_str() {
            Some(s) => s.len(),
            None => to_str(&item)?.len(),
        };
        check_size(bytes)?;
    }
    Ok(bytes)
}

/// repr(float): the shortest digits that read back, exponent form outside 1e-4 <= |x| < 1e16.
pub fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let mut plain = format!("{x}");
    if !plain.contains('.') {
        plain.push_str(".0");
    }
    plain
}

fn number_text(value: &Value, json: bool) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) if json && x.is_nan() => "NaN".into(),
        Ok(x) if json && x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Ok(x) => float_repr(x),
        Err(_) => value.to_string(),
    }
}

/// str(value) as jinja2 prints it.
pub fn to_str(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or("")),
        _ => repr(&mut out, value, 0)?,
    }
    Ok(out)
}

/// repr(value), which is also what pprint makes of a short one.
pub fn to_repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    repr(&mut out, value, 0)?;
    Ok(out)
}

fn repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(invalid("value is nested too deeply to be printed"));
    }
    check_size(out.len())?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number_text(value, false)),
        ValueKind::String => repr_str(out, value.as_str().unwrap_or("")),
        ValueKind::Seq => repr_seq(out, value, depth)?,
        ValueKind::Map => repr_map(out, value, depth)?,
        _ => write!(Bounded(out), "{value}").map_err(|_| invalid("value cannot be printed"))?,
    }
    Ok(())
}

fn repr_seq(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    let tuple = value.is_tuple();
    out.push(if tuple { '(' } else { '[' });
    let mut count = 0;
    for item in value.try_iter()? {
        if count > 0 {
            out.push_str(", ");
        }
        repr(out, &item, depth + 1)?;
        count += 1;
    }
    if tuple && count == 1 {
        out.push(',');
    }
    out.push(if tuple { ')' } else { ']' });
    Ok(())
}

fn repr_map(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    out.push('{');
    for (i, key) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        repr(out, &key, depth + 1)?;
        out.push_str(": ");
        repr(out, &value.get_item(&key)?, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

fn repr_str(out: &mut String, s: &str) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if sentinel::text_of(c).is_some() => out.push(c),
            c if c != ' ' && (c.is_control() || c.is_whitespace() || is_unprintable(c)) => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Formatting, private and noncharacter code points that str.isprintable() denies.
fn is_unprintable(c: char) -> bool {
    matches!(c as u32,
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e
        | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff9..=0xfffb | 0xe0001..=0xe007f
        | 0xf0000..=0x10ffff)
}

/// The options of json.dumps that templates use.
struct Dump {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The `tojson` of transformers: json.dumps with ensure_ascii off by default.
pub fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let pick = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(positional.or(named).filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let indent = match pick(indent, "indent")? {
        None => None,
        Some(v) if v.kind() == ValueKind::String => Some(v.to_string()),
        Some(v) => Some(" ".repeat(match i64::try_from(v.clone()) {
            Ok(n) => n.clamp(0, i64::MAX) as usize,
            Err(_) => usize::from(v.is_true()),
        }.min(INDENT_MAX + 1))),
    };
    if indent.as_ref().is_some_and(|s| s.len() > INDENT_MAX) {
        return Err(invalid("tojson: indent is too large"));
    }
    let mut dump = Dump {
        ensure_ascii: pick(ensure_ascii, "ensure_ascii")?.is_some_and(|v| v.is_true()),
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        sort_keys: pick(None, "sort_keys")?.is_some_and(|v| v.is_true()),
        indent,
    };
    if let Some(pair) = pick(separators, "separators")? {
        let parts: Vec<Value> = pair.try_iter()?.take(3).collect();
        match parts.as_slice() {
            [item, key] => {
                dump.item_separator = to_str(item)?;
                dump.key_separator = to_str(key)?;
            }
            _ => return Err(invalid("tojson: separators must be a pair")),
        }
    }
    kwargs.assert_all_used()?;
    let mut out = String::new();
    dump.value(&mut out, value, 0)?;
    Ok(Value::from(out))
}

impl Dump {
    fn value(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(invalid("tojson: value is nested too deeply"));
        }
        check_size(out.len())?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number_text(value, true)),
            ValueKind::String => self.string(out, value.as_str().unwrap_or("")),
            ValueKind::Seq => self.list(out, value, depth)?,
            ValueKind::Map => self.map(out, value, depth)?,
            // The sum of two lists is one of minijinja's sized iterables; a generator has no JSON.
            ValueKind::Iterable
                if value.len().is_some() && value.downcast_object_ref::<Generator>().is_none() =>
            {
                self.list(out, value, depth)?
            }
            kind => {
                return Err(invalid(format!("Object of type {kind} is not JSON serializable")))
            }
        }
        Ok(())
    }

    fn newline(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut any = false;
        out.push('[');
        for item in value.try_iter()? {
            if any {
                out.push_str(&self.item_separator);
            }
            self.newline(out, depth + 1);
            self.value(out, &item, depth + 1)?;
            any = true;
        }
        if any {
            self.newline(out, depth);
        }
        out.push(']');
        Ok(())
    }

    fn map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            pairs.push((Self::key(&key)?, value.get_item(&key)?));
        }
        if self.sort_keys {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        out.push('{');
        for (i, (key, item)) in pairs.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.newline(out, depth + 1);
            self.string(out, key);
            out.push_str(&self.key_separator);
            self.value(out, item, depth + 1)?;
        }
        if !pairs.is_empty() {
            self.newline(out, depth);
        }
        out.push('}');
        Ok(())
    }

    fn key(key: &Value) -> Result<String, Error> {
        Ok(match key.kind() {
            ValueKind::String => key.as_str().unwrap_or("").to_string(),
            ValueKind::None => "null".into(),
            ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
            ValueKind::Number => number_text(key, true),
            kind => return Err(invalid(format!("keys must be str, int, float, bool or None, not {kind}"))),
        })
    }

    fn string(&self, out: &mut String, s: &str) {
        out.push('"');
        for c in s.chars() {
            self.char(out, c);
        }
        out.push('"');
    }

    fn char(&self, out: &mut String, c: char) {
        if let Some(text) = sentinel::text_of(c) {
            // A text that JSON would escape is no control token any more once it is escaped.
            let plain = |c: char| c != '"' && c != '\\' && c >= ' ' && (c.is_ascii() || !self.ensure_ascii);
            if text.chars().all(plain) {
                out.push(c);
            } else {
                text.chars().for_each(|inner| self.char(out, inner));
            }
            return;
        }
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if c < ' ' || (self.ensure_ascii && c > '~') => {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
}
