"""Code that breaks off: tests, handlers and scripts."""

from __future__ import annotations

CODE: tuple[tuple[str, str], ...] = (
    (
        "javascript-routes",
        """
const express = require("express");
const { Books } = require("./store");

const router = express.Router();

router.get("/books", async (request, response) => {
  const books = await Books.all({ limit: request.query.limit || 20 });
  response.json(books);
});

router.get("/books/:id", async (request, response) => {
  const book = await Books.find(request.params.id);
  if (!book) {
    return response.status(404).json({ error: "no such book" });
  }
  response.json(book);
});

router.post("/books", async (request, response) => {
  const { title, author, year } = request.body;
  if (!title || !author) {
    return response.status(400).json({ error: "title and author are required" });
  }
  const book = await Books.insert({ title, author, year });
  response.status(201).json(book);
});

router.put("/books/:id", async (request, response) => {
  const book = await Books.find(request.params.id);
""",
    ),
    (
        "go-table-test",
        """
package slug

import "testing"

func TestMake(t *testing.T) {
	tests := []struct {
		name  string
		input string
		want  string
	}{
		{name: "empty", input: "", want: ""},
		{name: "one word", input: "Harbour", want: "harbour"},
		{name: "two words", input: "Old Harbour", want: "old-harbour"},
		{name: "spaces at the ends", input: "  Old Harbour ", want: "old-harbour"},
		{name: "punctuation", input: "Old, old harbour!", want: "old-old-harbour"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Make(test.input)
			if got != test.want {
				t.Errorf("Make(%q) = %q, want %q", test.input, got, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name  string
""",
    ),
    (
        "python-unit-tests",
        """
import pytest

from shop.basket import Basket, EmptyBasketError
from shop.money import Money


@pytest.fixture
def basket():
    return Basket(currency="EUR")


def test_a_new_basket_is_empty(basket):
    assert len(basket) == 0
    assert basket.total() == Money("0.00", "EUR")


def test_an_item_is_added_once(basket):
    basket.add("apple", price=Money("0.40", "EUR"))
    assert len(basket) == 1
    assert basket.total() == Money("0.40", "EUR")


def test_an_item_is_added_three_times(basket):
    basket.add("apple", price=Money("0.40", "EUR"), count=3)
    assert len(basket) == 1
    assert basket.total() == Money("1.20", "EUR")


def test_two_items_are_added_up(basket):
    basket.add("apple", price=Money("0.40", "EUR"))
    basket.add("pear", price=Money("0.55", "EUR"))
    assert len(basket) == 2
    assert basket.total() ==""",
    ),
    (
        "shell-backup",
        """
#!/bin/sh
# Copy the folders of the office to the backup disk and keep the last seven copies.
set -eu

target=/mnt/backup
keep=7

log() {
    printf '%s %s\\n' "$(date '+%F %T')" "$1" >> "$target/backup.log"
}

if ! mountpoint -q "$target"; then
    echo "the backup disk is not mounted at $target" >&2
    exit 1
fi

log "copying /srv/documents"
rsync -a --delete /srv/documents/ "$target/current/documents/"
log "copied /srv/documents"

log "copying /srv/mail"
rsync -a --delete /srv/mail/ "$target/current/mail/"
log "copied /srv/mail"

log "copying /srv/calendar"
rsync -a""",
    ),
    (
        "c-state-machine",
        """
#include <stdio.h>
#include "door.h"

enum state { CLOSED, OPENING, OPEN, CLOSING, BLOCKED };

static const char *name_of(enum state state)
{
    switch (state) {
    case CLOSED:
        return "closed";
    case OPENING:
        return "opening";
    case OPEN:
        return "open";
    case CLOSING:
        return "closing";
    case BLOCKED:
        return "blocked";
    }
    return "unknown";
}

enum state next_state(enum state state, enum event event)
{
    switch (state) {
    case CLOSED:
        if (event == BUTTON)
            return OPENING;
        return CLOSED;
    case OPENING:
        if (event == OBSTACLE)
            return BLOCKED;
        if (event == END_SWITCH)
            return OPEN;
        return OPENING;
    case OPEN:
        if (event ==""",
    ),
    (
        "typescript-types",
        """
export interface Address {
  street: string;
  city: string;
  postcode: string;
  country?: string;
}

export interface Customer {
  id: number;
  name: string;
  email: string;
  billing: Address;
  shipping?: Address;
}

export function isAddress(value: unknown): value is Address {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  const candidate = value as Record<string, unknown>;
  return (
    typeof candidate.street === "string" &&
    typeof candidate.city === "string" &&
    typeof candidate.postcode === "string" &&
    (candidate.country === undefined || typeof candidate.country === "string")
  );
}

export function isCustomer(value: unknown): value is Customer {
  if (typeof value""",
    ),
)
