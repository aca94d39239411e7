from dataclasses import replace
import pytest
from tests.forest.test_protocol import TARGETS, SHAPES, _case
from tests.simulator import Federation, run
from tests.worlds import assert_oracles_model, spec
from treetap.protocols.key_options import LATTICE

@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", TARGETS)
def test_x(target, shape, tmp_path):
    here, params = _case(target, shape)
    async def main():
        federation = Federation(tmp_path, here.tables)
        trained = await federation.train(spec(params, len(here.blocks), scheme=LATTICE))
        assert (trained.state, trained.error) == ("finished", "")
        assert_oracles_model(federation.states, here.oracle(params))
        await federation.close()
    run(main())
