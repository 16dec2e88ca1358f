//! One compiled chat template and its render.

use crate::normalise::{self, PartsSupport};
use crate::sentinel::{self, Sentinels, Tokens};
use crate::strftime::Time;
use crate::{pycompat, python, rewrite};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

/// Real templates are below 50 KiB. The parser's tree grows with the source, and folding a long chain of
/// constants takes time in the square of its length.
const SOURCE_BYTES_MAX: usize = 1 << 18;
/// About one unit per instruction and per 64 bytes made; 10,000 messages take a few millions. It also
/// bounds how deep a template can nest values (a million lists), and with it the stack in lib.rs.
const FUEL: u64 = 6_000_000;
const NAME: &str = "chat_template";

thread_local! {
    /// Of the render that this thread runs: what raise_exception said, and the time.
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
    static NOW: RefCell<Option<Time>> = const { RefCell::new(None) };
}

pub enum Failure {
    /// The template called raise_exception.
    Raised(String),
    Failed { line: usize, message: String },
}

fn failed<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Failed { line: 0, message: message.into() })
}

pub struct Output {
    pub text: String,
    pub literal: Vec<Range<usize>>,
}

pub struct Input<'a> {
    pub messages: Vec<&'a str>,
    pub tools: &'a str,
    pub documents: &'a str,
    pub kwargs: &'a str,
    pub now: &'a str,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub as_sent: bool,
}

/// Input after parsing.
struct Request {
    messages: Vec<Json>,
    tools: Option<Json>,
    documents: Option<Json>,
    kwargs: Map<String, Json>,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

pub struct Template {
    env: Environment<'static>,
    tokens: Tokens,
    bos: String,
    eos: String,
    private: HashSet<char>,
    parts: OnceLock<PartsSupport>,
}

impl Template {
    pub fn compile(source: &str, control: Vec<String>, bos: &str, eos: &str) -> Result<Self, Failure> {
        if source.len() > SOURCE_BYTES_MAX {
            return failed(format!("{} bytes are too many for a chat template", source.len()));
        }
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| describe(&e))?);
        env.set_fuel(Some(FUEL));
        let markup = rewrite::needs_markup(source);
        pycompat::install(&mut env, markup);
        env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
            let text = python::to_str(message)?;
            RAISED.with(|raised| *raised.borrow_mut() = Some(text.clone()));
            Err(python::invalid(text))
        });
        env.add_function("strftime_now", |pattern: &str| -> Result<String, Error> {
            match NOW.with(|now| *now.borrow()) {
                Some(time) => Ok(time.format(pattern)),
                None => Err(python::invalid("strftime_now: no time was given")),
            }
        });
        let Some(source_text) = rewrite::rewrite(source, markup) else {
            return failed("an expression joins too many parts with ~");
        };
        env.add_template_owned(NAME, source_text).map_err(|e| describe(&e))?;
        let mut private = HashSet::new();
        sentinel::collect_private(source, &mut private);
        Ok(Template {
            env,
            tokens: Tokens::new(control.into_iter()),
            bos: bos.into(),
            eos: eos.into(),
            private,
            parts: OnceLock::new(),
        })
    }

    pub fn render(&self, input: &Input) -> Result<Output, Failure> {
        NOW.with(|now| *now.borrow_mut() = Time::parse(input.now));
        let mut request = parse(input)?;
        let mut as_strings = None;
        for message in &mut request.messages {
            let Some(message) = message.as_object_mut() else { return failed("a message is no object") };
            normalise::as_transformers(message);
            if !input.as_sent {
                normalise::unify_content(message, || self.parts_support());
            }
        }
        if !input.as_sent {
            let before = request.messages.clone();
            let parse = |any, m: &mut Json| m.as_object_mut().is_some_and(normalise::parse_arguments) || any;
            if request.messages.iter_mut().fold(false, parse) {
                as_strings = Some(before);
            }
        }
        let first = match self.render_with_tools(&mut request) {
            Err(failure @ Failure::Failed { .. }) => failure,
            other => return other,
        };
        // A template may join the arguments as text.
        if let Some(messages) = as_strings {
            request.messages = messages;
            if let Ok(output) = self.render_with_tools(&mut request) {
                return Ok(output);
            }
        }
        Err(first)
    }

    /// transformers gives None when there are no tools; a template that loops over them without asking
    /// then fails, and means an empty list.
    fn render_with_tools(&self, request: &mut Request) -> Result<Output, Failure> {
        let first = match self.render_once(request) {
            Err(failure @ Failure::Failed { .. }) if request.tools.is_none() => failure,
            other => return other,
        };
        request.tools = Some(Json::Array(Vec::new()));
        let second = self.render_once(request);
        request.tools = None;
        match second {
            Err(Failure::Failed { .. }) => Err(first),
            other => other,
        }
    }

    fn render_once(&self, request: &Request) -> Result<Output, Failure> {
        let mut taken = self.private.clone();
        request.messages.iter().for_each(|m| collect(m, &mut taken));
        request.tools.iter().chain(&request.documents).for_each(|v| collect(v, &mut taken));
        request.kwargs.values().for_each(|v| collect(v, &mut taken));
        let mut hidden = Sentinels::new(&self.tokens, taken);
        let mut messages = request.messages.clone();
        let tag = match request.continue_final_message {
            true => Some(tag_final(&mut messages, &mut hidden)?),
            false => None,
        };
        let context = self.context(request, messages, &mut hidden)?;
        let map = hidden.map();
        sentinel::install(map.clone());
        RAISED.with(|raised| *raised.borrow_mut() = None);
        let template = self.env.get_template(NAME).map_err(|e| describe(&e))?;
        let mut text = template.render(context).map_err(|e| describe(&e))?;
        if let Some((tag, content)) = tag {
            cut_at_tag(&mut text, tag, &content, |s| sentinel::restore(s, &map).0)?;
        }
        let (text, literal) = sentinel::restore(&text, &map);
        Ok(Output { text, literal })
    }

    fn context(&self, request: &Request, messages: Vec<Json>, hidden: &mut Sentinels) -> Result<Value, Failure> {
        let mut context: Vec<(String, Value)> = Vec::new();
        let mut set = |name: &str, value: Value| context.push((name.to_string(), value));
        for (name, text) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            if !text.is_empty() {
                set(name, Value::from(text.as_str()));
            }
        }
        for (name, value) in &request.kwargs {
            set(name, to_value(value, hidden)?);
        }
        let messages: Vec<Value> =
            messages.iter().map(|m| to_value(m, hidden)).collect::<Result<_, _>>()?;
        set("messages", Value::from(messages));
        for (name, value) in [("tools", &request.tools), ("documents", &request.documents)] {
            set(name, value.as_ref().map_or(Ok(Value::from(())), |v| to_value(v, hidden))?);
        }
        let generate = request.add_generation_prompt && !request.continue_final_message;
        set("add_generation_prompt", Value::from(generate));
        Ok(Value::from_pairs(context))
    }

    /// Found out once by giving the template parts with two marks.
    fn parts_support(&self) -> PartsSupport {
        *self.parts.get_or_init(|| PartsSupport {
            system: self.prints_parts(&["system", "user"], 0),
            user: self.prints_parts(&["user"], 0),
            assistant: self.prints_parts(&["user", "assistant", "user"], 1),
            tool: self.prints_parts(&["user", "assistant", "tool"], 2),
        })
    }

    fn prints_parts(&self, roles: &[&str], place: usize) -> bool {
        let mut messages: Vec<Json> =
            roles.iter().map(|role| serde_json::json!({"role": role, "content": "x"})).collect();
        messages[place]["content"] =
            serde_json::json!([{"type": "text", "text": "<<MARK1"}, {"type": "text", "text": "MARK2>>"}]);
        if roles[place] == "tool" {
            let function = serde_json::json!({"name": "f", "arguments": {}});
            messages[1]["tool_calls"] =
                serde_json::json!([{"id": "call00001", "type": "function", "function": function}]);
            messages[2]["tool_call_id"] = "call00001".into();
        }
        let mut request = Request {
            messages,
            tools: None,
            documents: None,
            kwargs: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
        };
        let Ok(output) = self.render_with_tools(&mut request) else { return false };
        let both = output.text.find("<<MARK1").zip(output.text.find("MARK2>>"));
        // A list that was printed whole shows its keys between the marks.
        both.is_some_and(|(a, b)| a < b && !output.text[a..b].contains("type"))
    }
}

fn collect(json: &Json, taken: &mut HashSet<char>) {
    match json {
        Json::String(s) => sentinel::collect_private(s, taken),
        Json::Array(items) => items.iter().for_each(|v| collect(v, taken)),
        Json::Object(map) => map.iter().for_each(|(k, v)| {
            sentinel::collect_private(k, taken);
            collect(v, taken);
        }),
        _ => {}
    }
}

fn to_value(json: &Json, hidden: &mut Sentinels) -> Result<Value, Failure> {
    let hide = |s: &str, hidden: &mut Sentinels| match hidden.hide(s) {
        Some(text) => Ok(Value::from(text)),
        None => failed("the messages use up all private code points"),
    };
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => number(n),
        Json::String(s) => hide(s, hidden)?,
        Json::Array(items) => {
            let items: Vec<Value> = items.iter().map(|v| to_value(v, hidden)).collect::<Result<_, _>>()?;
            Value::from(items)
        }
        Json::Object(map) => {
            let mut out = Vec::with_capacity(map.len());
            for (key, value) in map {
                out.push((hide(key, hidden)?, to_value(value, hidden)?));
            }
            Value::from_pairs(out)
        }
    })
}

/// Python's reading: digits alone are an integer, everything else a float.
fn number(n: &serde_json::Number) -> Value {
    let text = n.as_str();
    if let Ok(x) = text.parse::<i64>() {
        return Value::from(x);
    }
    match text.parse::<i128>() {
        Ok(x) => Value::from(x),
        Err(_) => Value::from(text.parse::<f64>().unwrap_or(f64::NAN)),
    }
}

fn parse(input: &Input) -> Result<Request, Failure> {
    let read = |what: &str, text: &str| -> Result<Option<Json>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        match serde_json::from_str(text) {
            Ok(Json::Null) => Ok(None),
            Ok(json) => Ok(Some(json)),
            Err(e) => failed(format!("{what}: {e}")),
        }
    };
    let mut messages = Vec::new();
    for (i, text) in input.messages.iter().enumerate() {
        match read("message", text)? {
            Some(json @ Json::Object(_)) => messages.push(json),
            _ => return failed(format!("messages[{i}] is not an object")),
        }
    }
    let kwargs = match read("chat_template_kwargs", input.kwargs)? {
        None => Map::new(),
        Some(Json::Object(map)) => map,
        Some(_) => return failed("chat_template_kwargs is not an object"),
    };
    for name in ["messages", "tools", "documents", "add_generation_prompt"] {
        if kwargs.contains_key(name) {
            return failed(format!("chat_template_kwargs must not set {name}"));
        }
    }
    Ok(Request {
        messages,
        tools: read("tools", input.tools)?,
        documents: read("documents", input.documents)?,
        kwargs,
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
    })
}

/// Puts a tag and a space behind the last text of the last message, as transformers does to find where
/// it ends in the prompt. Returns the tag and that text.
fn tag_final(messages: &mut [Json], hidden: &mut Sentinels) -> Result<(char, String), Failure> {
    let Some(tag) = hidden.fresh() else { return failed("no private code point is left") };
    let content = messages.last_mut().and_then(|m| m.get_mut("content"));
    let text = match content {
        Some(text @ Json::String(_)) => Some(text),
        Some(Json::Array(parts)) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        _ => None,
    };
    match text {
        Some(Json::String(text)) => {
            let before = text.clone();
            text.push(tag);
            text.push(' ');
            Ok((tag, before))
        }
        _ => failed("continue_final_message: the last message has no text to continue"),
    }
}

/// Cuts the render behind the content. A template that strips the content took the tag's space too.
fn cut_at_tag(
    text: &mut String,
    tag: char,
    content: &str,
    restore: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let place = text.rfind(tag);
    let shown = restore(text).contains(content.trim_matches(python::is_space));
    let Some(place) = place.filter(|_| shown) else {
        return failed("continue_final_message: the template does not show the last message as it is");
    };
    let stripped = !text[place + tag.len_utf8()..].starts_with(' ');
    text.truncate(place);
    if stripped {
        text.truncate(text.trim_end_matches(python::is_space).len());
    }
    Ok(())
}

fn describe(error: &Error) -> Failure {
    if let Some(text) = RAISED.with(|raised| raised.borrow_mut().take()) {
        return Failure::Raised(text);
    }
    let message = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the template takes too many steps".to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Failure::Failed { line: error.line().unwrap_or(0), message }
}
