"""Options: what is wrong with one is said with its name, what was found and what was expected."""

import click
import pytest

from skillforge.cli.main import cli


def numbers(command, *names):
    """Yield every option that takes a number, with the names of the command that it belongs to."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from numbers(command.get_command(context, name), *names, name)
    for option in command.params:
        if isinstance(option.type, click.types.FloatParamType):
            yield pytest.param(context, option, id=" ".join((*names, *option.opts)))


@pytest.mark.parametrize("told", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize(("context", "option"), [*numbers(cli)])
def test_no_number_is_nan_infinite_or_negative(context, option, told):
    """Whatever command is told such a number, it is wrong usage, and the option is named."""
    with pytest.raises(click.BadParameter) as caught:
        option.type_cast_value(context, told)
    error = caught.value
    assert error.exit_code == 2
    assert option.opts[0] in error.format_message()
    assert told in error.format_message()
