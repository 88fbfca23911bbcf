//! Where it is shown: lines that are drawn anew on a terminal, and plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::view::{Change, Key, View};

pub struct Screen {
    begun: Instant,
    drawn: Option<Drawn>,
}

struct Drawn {
    multi: MultiProgress,
    tasks: BTreeMap<Key, ProgressBar>,
    foot: Option<ProgressBar>,
}

impl Screen {
    pub fn new() -> Self {
        let drawn = stdout().is_terminal().then(|| Drawn {
            multi: MultiProgress::with_draw_target(ProgressDrawTarget::stdout()),
            tasks: BTreeMap::new(),
            foot: None,
        });
        Self { begun: Instant::now(), drawn }
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// What is done now, and when.
    pub fn step(&self, text: &str) {
        self.say(&format!("{:5.1} s  {text}", self.elapsed().as_secs_f64()));
    }

    pub fn say(&self, text: &str) {
        let is_drawn = self.drawn.as_ref().is_some_and(|drawn| drawn.multi.println(text).is_ok());
        if !is_drawn {
            print_line(text);
        }
    }

    pub fn show(&mut self, view: &View, change: &Change) {
        match (&mut self.drawn, change) {
            (Some(drawn), _) => drawn.show(view),
            (None, Change::Task(key)) => self.step(&view.line(key)),
            (None, Change::Lanes) => self.step(&view.lanes_line()),
            (None, Change::Nothing) => {}
        }
    }

    /// What is drawn stays as it is, and what is said later comes below it.
    pub fn keep(&mut self) {
        let Some(drawn) = self.drawn.take() else { return };
        drawn.tasks.values().chain(&drawn.foot).for_each(ProgressBar::abandon);
        if drawn.foot.is_some() {
            print_line("");
        }
    }
}

/// Who reads it may be gone; what is there is removed all the same.
pub fn print_line(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}

impl Drawn {
    fn show(&mut self, view: &View) {
        let foot = self.foot.get_or_insert_with(|| self.multi.add(line())).clone();
        for key in view.tasks.keys() {
            let bar = self.tasks.entry(key.clone()).or_insert_with(|| self.multi.insert_before(&foot, line()));
            bar.set_message(view.line(key));
            bar.tick();
        }
        foot.set_message(view.lanes_line());
        foot.tick();
    }
}

fn line() -> ProgressBar {
    let style = ProgressStyle::with_template("         {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
