//! strftime of the C locale on a wall-clock time given as "YYYY-MM-DD hh:mm:ss".

use std::fmt::Write;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
];

#[derive(Clone, Copy)]
pub struct Time {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

/// Days since 1970-01-01 of the proleptic Gregorian calendar (Howard Hinnant's days_from_civil).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

impl Time {
    pub fn parse(text: &str) -> Option<Time> {
        let numbers: Vec<i64> =
            text.split(['-', ' ', 'T', ':']).map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let [year, month, day, hour, minute, second] = numbers[..] else { return None };
        let ok = (0..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..=60).contains(&second);
        ok.then_some(Time { year, month, day, hour, minute, second })
    }

    fn week_day(&self) -> i64 {
        (days(self.year, self.month, self.day) + 4).rem_euclid(7)
    }

    fn year_day(&self) -> i64 {
        days(self.year, self.month, self.day) - days(self.year, 1, 1)
    }

    /// ISO 8601 year and week.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.week_day() + 6) % 7;
        let thursday = days(self.year, self.month, self.day) - monday_based + 3;
        let mut year = self.year;
        if thursday < days(year, 1, 1) {
            year -= 1;
        } else if thursday >= days(year + 1, 1, 1) {
            year += 1;
        }
        (year, (thursday - days(year, 1, 1)) / 7 + 1)
    }

    fn hour12(&self) -> i64 {
        match self.hour % 12 {
            0 => 12,
            h => h,
        }
    }

    pub fn format(&self, pattern: &str) -> String {
        let mut out = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let begin = chars.as_str();
            let mut flag = None;
            let mut code = chars.next();
            if matches!(code, Some('-' | '_' | '0' | '^' | '#')) {
                flag = code;
                code = chars.next();
            }
            let done = code.is_some_and(|code| self.field(&mut out, flag, code));
            if !done {
                // The C library prints what it does not know.
                out.push('%');
                out.push_str(&begin[..begin.len() - chars.as_str().len()]);
            }
        }
        out
    }

    fn field(&self, out: &mut String, flag: Option<char>, code: char) -> bool {
        let week_day = self.week_day();
        let day_name = DAYS[week_day as usize];
        let month_name = MONTHS[(self.month - 1) as usize];
        match code {
            'a' => text(out, flag, &day_name[..3]),
            'A' => text(out, flag, day_name),
            'b' | 'h' => text(out, flag, &month_name[..3]),
            'B' => text(out, flag, month_name),
            'p' => text(out, flag, if self.hour < 12 { "AM" } else { "PM" }),
            'P' => text(out, flag, if self.hour < 12 { "am" } else { "pm" }),
            'C' => number(out, flag, self.year / 100, 2, '0'),
            'd' => number(out, flag, self.day, 2, '0'),
            'e' => number(out, flag, self.day, 2, ' '),
            'f' => number(out, None, 0, 6, '0'),
            'g' => number(out, flag, self.iso_week().0 % 100, 2, '0'),
            'G' => number(out, flag, self.iso_week().0, 4, '0'),
            'H' => number(out, flag, self.hour, 2, '0'),
            'I' => number(out, flag, self.hour12(), 2, '0'),
            'j' => number(out, flag, self.year_day() + 1, 3, '0'),
            'k' => number(out, flag, self.hour, 2, ' '),
            'l' => number(out, flag, self.hour12(), 2, ' '),
            'm' => number(out, flag, self.month, 2, '0'),
            'M' => number(out, flag, self.minute, 2, '0'),
            'S' => number(out, flag, self.second, 2, '0'),
            'u' => number(out, flag, if week_day == 0 { 7 } else { week_day }, 1, '0'),
            'U' => number(out, flag, (self.year_day() + 7 - week_day) / 7, 2, '0'),
            'V' => number(out, flag, self.iso_week().1, 2, '0'),
            'w' => number(out, flag, week_day, 1, '0'),
            'W' => number(out, flag, (self.year_day() + 7 - (week_day + 6) % 7) / 7, 2, '0'),
            'y' => number(out, flag, self.year % 100, 2, '0'),
            'Y' => number(out, flag, self.year, if flag.is_some() { 4 } else { 1 }, '0'),
            'c' => out.push_str(&self.format("%a %b %e %H:%M:%S %Y")),
            'D' | 'x' => out.push_str(&self.format("%m/%d/%y")),
            'F' => out.push_str(&self.format("%Y-%m-%d")),
            'r' => out.push_str(&self.format("%I:%M:%S %p")),
            'R' => out.push_str(&self.format("%H:%M")),
            'T' | 'X' => out.push_str(&self.format("%H:%M:%S")),
            // A time without a zone, as datetime.now() is.
            'z' | 'Z' => {}
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            _ => return false,
        }
        true
    }
}

fn text(out: &mut String, flag: Option<char>, value: &str) {
    match flag {
        Some('^') => out.push_str(&value.to_uppercase()),
        Some('#') if value == "AM" || value == "PM" => out.push_str(&value.to_lowercase()),
        Some('#') => out.push_str(&value.to_uppercase()),
        _ => out.push_str(value),
    }
}

fn number(out: &mut String, flag: Option<char>, value: i64, width: usize, pad: char) {
    let pad = match flag {
        Some('-') => None,
        Some('_') => Some(' '),
        Some('0') => Some('0'),
        _ => Some(pad),
    };
    let _ = match pad {
        None => write!(out, "{value}"),
        Some(' ') => write!(out, "{value:width$}"),
        Some(_) => write!(out, "{value:0width$}"),
    };
}
