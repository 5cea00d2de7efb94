"""Code that breaks off: tables, styles and settings."""

from __future__ import annotations

CODE: tuple[tuple[str, str], ...] = (
    (
        "sql-library",
        """
CREATE TABLE reader (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    card_number TEXT NOT NULL UNIQUE,
    joined_on   DATE NOT NULL
);

CREATE TABLE book (
    id       INTEGER PRIMARY KEY,
    title    TEXT NOT NULL,
    author   TEXT NOT NULL,
    isbn     TEXT UNIQUE,
    shelf    TEXT NOT NULL
);

CREATE TABLE loan (
    id          INTEGER PRIMARY KEY,
    reader_id   INTEGER NOT NULL REFERENCES reader (id),
    book_id     INTEGER NOT NULL REFERENCES book (id),
    lent_on     DATE NOT NULL,
    returned_on DATE
);

CREATE INDEX loan_reader ON loan (reader_id);
CREATE INDEX loan_book ON loan (book_id);

-- Books that are lent out at the moment, with the reader who has them.
CREATE VIEW lent AS
SELECT book.title, book.author, reader.name, loan.lent_on
FROM loan
JOIN book ON book.id = loan.book_id
JOIN reader ON""",
    ),
    (
        "css-buttons",
        """
.button {
  border: 1px solid var(--line);
  border-radius: 4px;
  color: var(--text);
  background: var(--paper);
  padding: 0.4rem 0.8rem;
}

.button:hover {
  background: var(--paper-dark);
}

.button:disabled {
  color: var(--text-light);
  cursor: not-allowed;
}

.button--primary {
  border-color: var(--blue);
  color: var(--white);
  background: var(--blue);
}

.button--primary:hover {
  background: var(--blue-dark);
}

.button--primary:disabled {
  border-color: var(--blue-light);
  background: var(--blue-light);
}

.button--danger {
  border-color: var(--red);
  color: var(--white);
""",
    ),
    (
        "html-timetable",
        """
<table class="timetable">
  <caption>Ferry to Little Hove, Monday to Friday</caption>
  <thead>
    <tr>
      <th scope="col">Hove pier</th>
      <th scope="col">Lighthouse</th>
      <th scope="col">Little Hove</th>
      <th scope="col">Note</th>
    </tr>
  </thead>
  <tbody>
    <tr>
      <td>06:10</td>
      <td>06:25</td>
      <td>06:40</td>
      <td>not on public holidays</td>
    </tr>
    <tr>
      <td>07:40</td>
      <td>07:55</td>
      <td>08:10</td>
      <td></td>
    </tr>
    <tr>
      <td>09:10</td>
      <td>09:25</td>
      <td>09:40</td>
      <td></td>
    </tr>
    <tr>
      <td>""",
    ),
    (
        "yaml-pipeline",
        """
name: checks

on:
  push:
    branches: [main]
  pull_request:

jobs:
  lint:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
      - run: pip install -r requirements-dev.txt
      - run: ruff check .
      - run: ruff format --check .

  types:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
      - run: pip install -r requirements-dev.txt
      - run: mypy src

  tests:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.12", "3.13"]
    steps:
""",
    ),
    (
        "java-builder",
        """
package org.example.mail;

import java.util.ArrayList;
import java.util.List;

public final class MessageBuilder {
    private String sender;
    private String subject;
    private String body;
    private final List<String> recipients = new ArrayList<>();
    private final List<String> copies = new ArrayList<>();

    public MessageBuilder sender(String sender) {
        this.sender = requireAddress(sender, "sender");
        return this;
    }

    public MessageBuilder subject(String subject) {
        this.subject = requireText(subject, "subject");
        return this;
    }

    public MessageBuilder body(String body) {
        this.body = requireText(body, "body");
        return this;
    }

    public MessageBuilder recipient(String address) {
        this.recipients.add(requireAddress(address, "recipient"));
        return this;
    }

    public MessageBuilder copy(""",
    ),
    (
        "rust-units",
        """
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unit {
    Metre,
    Kilometre,
    Mile,
    Foot,
    Inch,
}

impl Unit {
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Metre => "m",
            Unit::Kilometre => "km",
            Unit::Mile => "mi",
            Unit::Foot => "ft",
            Unit::Inch => "in",
        }
    }

    pub fn in_metres(self) -> f64 {
        match self {
            Unit::Metre => 1.0,
            Unit::Kilometre => 1000.0,
            Unit::Mile => 1609.344,
            Unit::Foot => 0.3048,
            Unit::Inch => 0.0254,
        }
    }
}

impl std::str::FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "m" => Ok(Unit::Metre),
            "km" =>""",
    ),
)
