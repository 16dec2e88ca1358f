//! What the template language of transformers has and minijinja's parser lacks, rewritten in the source
//! before it is compiled: {% generation %} blocks and `'text %s' % value`. Lines keep their numbers.

/// Compiling a chain of `~` takes time in the square of its length.
const CONCATENATIONS_MAX: usize = 1_000;

/// The filter that prints a value, in sources that need `markup` (see needs_markup).
pub const PRINT: &str = "python_print";

/// True for a source in which `+` may escape text for HTML: jinja2's `safe` gives a Markup even where
/// nothing is escaped on output, and Markup + str escapes the str. Sources with other ways to make or
/// join marked text are left out, since minijinja would escape there and jinja2 does not.
pub fn needs_markup(source: &str) -> bool {
    const OTHERS: [&str; 6] = ["~", "macro", "endset", "endcall", "endfilter", "autoescape"];
    let is_filter = |(at, word): (usize, &str)| {
        let ends = !source[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        ends && source[..at].trim_end().ends_with('|')
    };
    source.match_indices("safe").any(is_filter) && !OTHERS.iter().any(|other| source.contains(other))
}

/// The source as minijinja takes it; None when one expression is a chain too long to compile.
/// `markup`: printed values go through PRINT.
pub fn rewrite(source: &str, markup: bool) -> Option<String> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (text, code) = rest.split_at(at);
        out.push_str(text);
        rest = code;
        let taken = match rest.as_bytes().get(1) {
            Some(b'#') => copy_comment(rest, &mut out),
            Some(b'%') => copy_block(rest, &mut out)?,
            Some(b'{') if markup => copy_printed(rest, &mut out)?,
            Some(b'{') => copy_code(rest, 2, "}}", &mut out)?,
            _ => {
                out.push('{');
                1
            }
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Some(out)
}

/// `{{ expression }}` as `{{ (expression)|python_print }}`.
fn copy_printed(rest: &str, out: &mut String) -> Option<usize> {
    let mut code = String::new();
    let taken = copy_code(rest, 2, "}}", &mut code)?;
    let is_sign = |c: char| c == '-' || c == '+';
    let open = 2 + usize::from(code[2..].starts_with(is_sign));
    let inner = code.strip_suffix("}}").filter(|inner| inner.len() > open);
    let Some(inner) = inner else {
        out.push_str(&code);
        return Some(taken);
    };
    let close = inner.len() - usize::from(inner.len() > open + 1 && inner.ends_with(is_sign));
    out.push_str(&format!("{}({})|{PRINT} {}", &code[..open], &inner[open..close], &code[close..]));
    Some(taken)
}

fn copy_comment(rest: &str, out: &mut String) -> usize {
    let end = rest.find("#}").map_or(rest.len(), |i| i + 2);
    out.push_str(&rest[..end]);
    end
}

fn copy_block(rest: &str, out: &mut String) -> Option<usize> {
    let inner = rest[2..].trim_start_matches(['-', '+']);
    let sign_end = rest.len() - inner.len();
    let word_at = inner.len() - inner.trim_start().len();
    let word_len = inner[word_at..].find(|c: char| !c.is_alphanumeric() && c != '_');
    let word = &inner[word_at..word_at + word_len.unwrap_or(inner.len() - word_at)];
    let after = sign_end + word_at + word.len();
    match word {
        // Marks the parts a model is trained on; renders as if it were not there.
        "generation" | "endgeneration" => {
            out.push_str(&rest[..sign_end + word_at]);
            out.push_str(if word == "generation" { "if true" } else { "endif" });
            Some(after)
        }
        "raw" => {
            let end = rest.find("endraw").map_or(rest.len(), |i| i + "endraw".len());
            out.push_str(&rest[..end]);
            Some(end)
        }
        _ => copy_code(rest, 2, "%}", out),
    }
}

/// Copies code up to and with `end`, rewriting `'..' % operand`. Returns the bytes taken.
fn copy_code(rest: &str, begin: usize, end: &str, out: &mut String) -> Option<usize> {
    let mut concatenations = 0;
    let bytes = rest.as_bytes();
    let (mut at, mut copied, mut depth, mut after_string) = (begin, 0, 0usize, false);
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'\'' | b'"' => {
                at = string_end(bytes, at);
                after_string = true;
                continue;
            }
            _ if depth == 0 && rest[at..].starts_with(end) => {
                at += 2;
                break;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'~' => concatenations += 1,
            b'%' if after_string => {
                let operand = at + 1 + space_len(&bytes[at + 1..]);
                let operand_end = operand_end(bytes, operand);
                if operand_end > operand {
                    out.push_str(&rest[copied..at]);
                    out.push_str("|percent_format(");
                    out.push_str(&rest[operand..operand_end]);
                    out.push(')');
                    (at, copied) = (operand_end, operand_end);
                    after_string = true;
                    continue;
                }
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            after_string = false;
        }
        at += if byte < 0x80 { 1 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
    }
    out.push_str(&rest[copied..at]);
    (concatenations <= CONCATENATIONS_MAX).then_some(at)
}

fn space_len(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

fn string_end(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != bytes[begin] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn name_end(bytes: &[u8], begin: usize) -> usize {
    begin + bytes[begin..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

/// End of the bracket that opens at `begin`; `begin` when it does not close.
fn bracket_end(bytes: &[u8], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    begin
}

/// End of one operand of `%`: a primary with its attributes, subscripts, calls and filters.
fn operand_end(bytes: &[u8], begin: usize) -> usize {
    let mut at = match bytes.get(begin) {
        Some(b'\'' | b'"') => string_end(bytes, begin),
        Some(b'(' | b'[' | b'{') => bracket_end(bytes, begin),
        Some(b) if b.is_ascii_alphanumeric() || *b == b'_' => name_end(bytes, begin),
        _ => return begin,
    };
    while at > begin {
        let next = match bytes.get(at) {
            Some(b'.' | b'|') => {
                let name = at + 1 + space_len(&bytes[at + 1..]);
                let end = name_end(bytes, name);
                if end == name { at } else { end }
            }
            Some(b'[' | b'(') => bracket_end(bytes, at),
            _ => at,
        };
        if next == at {
            break;
        }
        at = next;
    }
    at
}
