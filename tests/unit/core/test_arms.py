"""The lists of arms that can be evaluated, and what each arm shows."""

import pytest
from support.world import skill

from skillforge.core.arms import EFFECTS, THREE_ARMS, TWO_ARMS, check_arms, shown_in
from skillforge.errors import ConfigError, SuiteError


def test_the_effects_add_up():
    """Being listed and the body lead from nothing to everything, by way of the description."""
    effects = EFFECTS[THREE_ARMS]

    assert (effects["listed"][0], effects["body"][1]) == effects["whole"]
    assert effects["listed"][1] == effects["body"][0] == "description"
    assert list(EFFECTS[TWO_ARMS]) == ["whole"]


@pytest.mark.parametrize("names", [TWO_ARMS, THREE_ARMS])
def test_a_whole_list_is_taken(names):
    """Both lists of the documentation are known."""
    assert check_arms(list(names)) == names


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["none", "listed", "full"], "no arm 'listed'"),
        (["none", "full"], "all arms, in order"),
        (["full", "description", "none"], "all arms, in order"),
        (["base", "augmented", "full"], "all arms, in order"),
        ([""], "no arm ''"),
    ],
)
def test_another_list_is_an_error_that_names_the_two(names, said):
    """Unknown, partial, reordered and mixed lists are refused."""
    with pytest.raises(ConfigError, match=said) as refused:
        check_arms(names)

    assert "base,augmented or none,description,full" in str(refused.value)


def test_raw_needs_trajectories():
    """The control arm is known, and the error says what the suite does not have."""
    with pytest.raises(SuiteError, match="no raw trajectories"):
        check_arms(["raw", "full"])


def test_each_arm_shows_its_part():
    """Nothing, frontmatter without body or other files, and the package itself."""
    package = skill("shout", "Use capitals.").replace_file("references/more.md", b"More")
    listed = shown_in("description", package)

    assert [shown_in(arm, package) for arm in ("none", "base")] == [None, None]
    assert shown_in("full", package) is shown_in("augmented", package) is package
    assert list(listed.files) == ["SKILL.md"]
    assert (listed.name, listed.description, listed.body.strip()) == (
        "shout",
        package.description,
        "",
    )
