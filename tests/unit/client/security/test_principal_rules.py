"""Distinguished names, and the rules that make user names of them."""

from __future__ import annotations

import pytest

from client.errors import ConfigError
from client.security.principal_rules import PrincipalRules, distinguished_name

ANNA = ((("countryName", "DE"),), (("organizationName", "Quire"),), (("commonName", "Anna"),))


def test_the_most_specific_part_comes_first() -> None:
    assert distinguished_name(ANNA) == "CN=Anna,O=Quire,C=DE"


def test_parts_of_several_pairs_and_special_characters() -> None:
    subject = (
        (("organizationName", "A, B+C"),),
        (("commonName", " #x "), ("userId", 'q"u\\x')),
    )
    assert distinguished_name(subject) == 'CN=\\ #x\\ +UID=q\\"u\\\\x,O=A\\, B\\+C'


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Anna,O=Quire,C=DE"),
        ("RULE:^CN=(.*?),.*$/$1/", "Anna"),
        ("RULE:^CN=(.*?),.*$/$1/L", "anna"),
        ("RULE:^CN=(.*?),O=(.*?),.*$/$1@$2/U", "ANNA@QUIRE"),
        ("RULE:^CN=(.*?),OU=x.*$/wrong/, RULE:^CN=([^,]+),.*$/$1-2/ ,DEFAULT", "Anna-2"),
        ("RULE:^CN=Anna$/part/,DEFAULT", "CN=Anna,O=Quire,C=DE"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "a/Anna"),
        ("RULE:^CN=Bert.*$/bert/", None),
    ],
)
def test_the_first_rule_that_matches_all_of_it_decides(rules: str, name: str | None) -> None:
    assert PrincipalRules(rules).name_of(ANNA) == name


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "no rule"),
        ("NONE", "must be RULE"),
        ("RULE:a/b", "must be RULE"),
        ("RULE:a/b/X", "must be RULE"),
        ("DEFAULT DEFAULT", "must be RULE"),
        ("RULE:(/b/", "is not a pattern"),
        ("RULE:(a)/$2/", "has no group 2"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrincipalRules(rules)
