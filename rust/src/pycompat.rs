//! Methods, filters and tests as jinja2 on Python has them, where minijinja's differ or are missing.

use crate::python::{invalid, is_space, texts_size, to_repr, to_str, tojson, TEXT_BYTES_MAX};
use crate::rewrite::PRINT;
use crate::sentinel;
use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{from_args, Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs};
use minijinja::{filters, AutoEscape, Environment, Error, ErrorKind, State, Value};
use std::sync::Arc;

/// What jinja2's map, select and their kin give: iterable, always true, no JSON.
#[derive(Debug)]
pub struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.clone())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// `markup`: the source joins marked text, see rewrite::needs_markup. minijinja gives the formatter the
/// unmarked side of such a sum, and everything that is printed, which PRINT has marked.
pub fn install(env: &mut Environment<'static>, markup: bool) {
    env.add_filter("tojson", tojson);
    env.add_filter("percent_format", percent_format);
    env.add_filter("string", |v: &Value| to_str(v).map(Value::from));
    env.add_filter("trim", |v: &Value, chars: Option<String>| {
        to_str(v).map(|s| Value::from(strip(&s, chars.as_deref(), true, true)))
    });
    lazy(env, "map", Value::from_function(filters::map));
    lazy(env, "select", Value::from_function(filters::select));
    lazy(env, "reject", Value::from_function(filters::reject));
    lazy(env, "selectattr", Value::from_function(filters::selectattr));
    lazy(env, "rejectattr", Value::from_function(filters::rejectattr));
    env.add_filter("format", |pattern: String, args: Rest<ValueOrKwargs>| {
        bounded_format(FormatStyle::Printf, &pattern, &args.into_values())
    });
    env.add_filter("pprint", |v: &Value| to_repr(v).map(Value::from));
    measured(env, "join", Value::from_function(filters::join), charge_join);
    measured(env, "sum", Value::from_function(filters::sum), check_sum);
    env.remove_filter("chain");  // not Jinja's; its lists double without a cost
    env.add_test("sequence", |v: &Value| {
        matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    env.add_test("iterable", |v: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(v.kind(), Seq | Map | String | Iterable | Undefined)
    });
    env.add_global("cycler", Value::from_function(minijinja_contrib::globals::cycler));
    env.add_global("joiner", Value::from_function(minijinja_contrib::globals::joiner));
    env.set_unknown_method_callback(method);
    if markup {
        env.set_auto_escape_callback(|_| AutoEscape::Custom("python".into()));
        env.add_filter(PRINT, |v: &Value| to_str(v).map(Value::from_safe_string));
    } else {
        env.set_auto_escape_callback(|_| AutoEscape::None);
    }
    env.set_formatter(move |out, _state, value| {
        if markup && !value.is_safe() {
            return Ok(out.write_str(&escape(&to_str(value)?))?);
        }
        match value.as_str() {
            Some(s) => out.write_str(s)?,
            None => out.write_str(&to_str(value)?)?,
        }
        Ok(())
    });
}

/// markupsafe.escape. A control token of the data that is hidden here shows its text, which escaped is
/// no control token any more.
fn escape(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut one = |c: char| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '\'' => out.push_str("&#39;"),
        '"' => out.push_str("&#34;"),
        c => out.push(c),
    };
    for c in s.chars() {
        match sentinel::text_of(c) {
            Some(text) => text.chars().for_each(&mut one),
            None => one(c),
        }
    }
    out
}

/// A filter of minijinja that gives a list, giving a generator.
fn lazy(env: &mut Environment<'static>, name: &'static str, filter: Value) {
    env.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let items: Vec<Value> = filter.call(state, &args.into_values())?.try_iter()?.collect();
        Ok(Value::from_object(Generator(items)))
    });
}

/// A filter of minijinja that first hears what its work will cost.
fn measured(
    env: &mut Environment<'static>,
    name: &'static str,
    filter: Value,
    check: fn(&State, &Value) -> Result<(), Error>,
) {
    env.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let args = args.into_values();
        if let Some(items) = args.first() {
            check(state, items)?;
        }
        filter.call(state, &args)
    });
}

fn charge_bytes(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / 64) as u64)
}

/// minijinja charges for the separators; the items, which may be one large text again and again, are paid
/// when it is too late.
fn charge_join(state: &State, items: &Value) -> Result<(), Error> {
    match items.try_iter() {
        Ok(iter) => charge_bytes(state, texts_size(iter)?),
        Err(_) => Ok(()),  // the filter says what is wrong
    }
}

/// Sums of lists and texts copy all that was summed before at every step.
fn check_sum(state: &State, items: &Value) -> Result<(), Error> {
    let Ok(iter) = items.try_iter() else { return Ok(()) };
    let mut count = 0;
    let counted = iter.filter(|item| !item.is_number()).inspect(|_| count += 1);
    let bytes = texts_size(counted)?;
    charge_bytes(state, bytes.saturating_mul(count))
}

/// `'..' % value` after rewrite.rs.
fn percent_format(text: &str, operand: &Value) -> Result<Value, Error> {
    let args: Vec<Value> = match operand.is_tuple() {
        true => operand.try_iter()?.collect(),
        false => vec![operand.clone()],
    };
    bounded_format(FormatStyle::Printf, text, &args)
}

/// A width or precision of many digits would fill the memory before any fuel is charged.
fn bounded_format(style: FormatStyle, pattern: &str, args: &[Value]) -> Result<Value, Error> {
    const WIDTH_MAX: i64 = 9_999;
    let has_long_number = |spec: &str| spec.split(|c: char| !c.is_ascii_digit()).any(|run| run.len() > 4);
    let too_wide = match style {
        FormatStyle::StrFormat => pattern.split('{').skip(1).any(|field| {
            let field = field.split('}').next().unwrap_or(field);
            field.split_once(':').is_some_and(|(_, spec)| has_long_number(spec))
        }),
        FormatStyle::Printf => {
            let large = |v: &Value| v.is_integer() && i64::try_from(v.clone()).map_or(true, |n| n.abs() > WIDTH_MAX);
            pattern.split('%').skip(1).any(|field| {
                let field = field.strip_prefix('(').and_then(|f| f.split_once(')')).map_or(field, |f| f.1);
                let spec = field.split(char::is_alphabetic).next().unwrap_or(field);
                has_long_number(spec) || (spec.contains('*') && args.iter().any(large))
            })
        }
    };
    if too_wide {
        return Err(invalid(format!("format: a width is above {WIDTH_MAX}")));
    }
    let mark = if style == FormatStyle::StrFormat { '{' } else { '%' };
    let fields = pattern.matches(mark).count();
    if fields.saturating_mul(texts_size(args.iter().cloned())?) > TEXT_BYTES_MAX {
        return Err(invalid("format: too many fields of too large values"));
    }
    format(style, pattern, args).map(Value::from)
}

fn strip(s: &str, chars: Option<&str>, left: bool, right: bool) -> String {
    let hit = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(hit) } else { s };
    let s = if right { s.trim_end_matches(hit) } else { s };
    s.to_string()
}

fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => {
            let s = value.as_str().unwrap_or("");
            charge_bytes(state, s.len())?;
            if name == "join" {
                args.first().map_or(Ok(()), |items| charge_join(state, items))?;
            }
            str_method(s, name, args)
        }
        ValueKind::Seq => list_method(value, name, args),
        ValueKind::Map if name == "copy" => from_args::<()>(args).map(|()| value.clone()),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    };
    match own {
        Err(e) if e.kind() == ErrorKind::UnknownMethod => {
            minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
        }
        other => other,
    }
}

fn list_method(value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match name {
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let place = value.try_iter()?.position(|item| item == *what);
            place.map(Value::from).ok_or_else(|| invalid("value is not in the list"))
        }
        "copy" => from_args::<()>(args).map(|()| value.clone()),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn str_method(s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<String>,) = from_args(args)?;
            Ok(strip(s, chars.as_deref(), name != "rstrip", name != "lstrip").into())
        }
        "format" => bounded_format(FormatStyle::StrFormat, s, args),
        "split" | "rsplit" => split(s, name == "rsplit", args),
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            split_lines(s, keep.unwrap_or(false))
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if name == "index" { s.find(what) } else { s.rfind(what) };
            let at = at.ok_or_else(|| invalid("substring not found"))?;
            Ok(s[..at].chars().count().into())
        }
        "partition" | "rpartition" => {
            let (what,): (&str,) = from_args(args)?;
            if what.is_empty() {
                return Err(invalid("empty separator"));
            }
            let left = name == "partition";
            let found = if left { s.split_once(what) } else { s.rsplit_once(what) };
            let parts = match found {
                Some((a, b)) => [a, what, b],
                None if left => [s, "", ""],
                None => ["", "", s],
            };
            Ok(Value::from(minijinja::value::Tuple::from(parts.map(Value::from))))
        }
        "removeprefix" => {
            let (what,): (&str,) = from_args(args)?;
            Ok(s.strip_prefix(what).unwrap_or(s).into())
        }
        "removesuffix" => {
            let (what,): (&str,) = from_args(args)?;
            Ok(s.strip_suffix(what).unwrap_or(s).into())
        }
        "casefold" => from_args::<()>(args).map(|()| s.to_lowercase().into()),
        "swapcase" => from_args::<()>(args).map(|()| swap_case(s).into()),
        "isdecimal" => from_args::<()>(args)
            .map(|()| (!s.is_empty() && s.chars().all(|c| c.is_ascii_digit())).into()),
        "ljust" | "rjust" | "center" | "zfill" => justify(s, name, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn swap_case(s: &str) -> String {
    let swap = |c: char| -> String {
        if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
    };
    s.chars().map(swap).collect()
}

fn justify(s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<String>) = from_args(args)?;
    if width > 10_000 {
        return Err(invalid(format!("{name}: width is too large")));
    }
    let fill = fill.unwrap_or_else(|| if name == "zfill" { "0" } else { " " }.into());
    if fill.chars().count() != 1 {
        return Err(invalid(format!("{name}: the fill character must be exactly one character long")));
    }
    let missing = width.saturating_sub(s.chars().count());
    let (left, right) = match name {
        "ljust" => (0, missing),
        // CPython's own rounding of the odd column.
        "center" => {
            let left = missing / 2 + (missing & width & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    let (sign, body) = match s.chars().next() {
        Some('+' | '-') if name == "zfill" => s.split_at(1),
        _ => ("", s),
    };
    Ok(format!("{sign}{}{body}{}", fill.repeat(left), fill.repeat(right)).into())
}

fn split(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (args, kwargs): (&[Value], Kwargs) = from_args(args)?;
    let separator = args.first().cloned().or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let splits_max = match args.get(1).cloned().or(kwargs.get("maxsplit")?) {
        None => usize::MAX,
        Some(v) => usize::try_from(i64::try_from(v)?).unwrap_or(usize::MAX),
    };
    kwargs.assert_all_used()?;
    // One more than are allowed, to see that there are too many.
    let pieces_max = splits_max.saturating_add(1).min(PIECES_MAX + 1);
    let splits_max = pieces_max - 1;
    let parts: Vec<&str> = match &separator {
        None if from_right => split_space_right(s, splits_max),
        None => split_space(s, splits_max),
        Some(by) => {
            let by = by.as_str().ok_or_else(|| invalid("split: the separator must be a string"))?;
            if by.is_empty() {
                return Err(invalid("empty separator"));
            }
            if from_right {
                let mut parts: Vec<&str> = s.rsplitn(pieces_max, by).collect();
                parts.reverse();
                parts
            } else {
                s.splitn(pieces_max, by).collect()
            }
        }
    };
    check_pieces(parts.len())?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// A piece takes 24 bytes and more.
const PIECES_MAX: usize = 1 << 21;

fn check_pieces(count: usize) -> Result<(), Error> {
    match count > PIECES_MAX {
        true => Err(invalid(format!("the text has more than {PIECES_MAX} pieces"))),
        false => Ok(()),
    }
}

fn split_space(s: &str, splits_max: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), s.trim_start_matches(is_space));
    while !rest.is_empty() {
        let end = if parts.len() < splits_max { rest.find(is_space) } else { None };
        let Some(end) = end else {
            // As in Python, what maxsplit leaves keeps its white space at the end.
            parts.push(rest);
            break;
        };
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn split_space_right(s: &str, splits_max: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), s.trim_end_matches(is_space));
    while !rest.is_empty() {
        let cut = if parts.len() < splits_max { rest.rfind(is_space) } else { None };
        let Some(cut) = cut else {
            parts.push(rest);
            break;
        };
        let width = rest[cut..].chars().next().map_or(1, char::len_utf8);
        parts.push(&rest[cut + width..]);
        rest = rest[..cut].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

fn split_lines(s: &str, keep: bool) -> Result<Value, Error> {
    let is_break = |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), s);
    while !rest.is_empty() {
        check_pieces(lines.len() + 1)?;
        let end = rest.find(is_break).unwrap_or(rest.len());
        let width = match rest[end..].chars().next() {
            None => 0,
            Some('\r') if rest[end..].starts_with("\r\n") => 2,
            Some(c) => c.len_utf8(),
        };
        lines.push(Value::from(&rest[..if keep { end + width } else { end }]));
        rest = &rest[end + width..];
    }
    Ok(Value::from(lines))
}
