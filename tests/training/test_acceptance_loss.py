"""The loss falls where acceptance rises, and whole or in parts it is the same."""

import pytest

torch = pytest.importorskip("torch")

from localspec.training import acceptance_loss as losses  # noqa: E402
from localspec.training.acceptance_loss import acceptance_loss, agreement  # noqa: E402
from localspec.training.examples import TopRows  # noqa: E402

VOCABULARY, WIDTH, ROWS = 50, 8, 12


def exact_top(logits: "torch.Tensor", count: int = VOCABULARY) -> TopRows:
    log_probs, ids = logits.log_softmax(-1).sort(descending=True)
    rest = 1 - log_probs[:, :count].exp().sum(-1)
    return TopRows(ids[:, :count], log_probs[:, :count], rest.clamp_min(1e-13).log())


@pytest.fixture
def rows() -> tuple["torch.Tensor", "torch.Tensor", TopRows]:
    torch.manual_seed(3)
    table = torch.randn(VOCABULARY, WIDTH)
    right = torch.randn(ROWS, VOCABULARY) * 2
    return torch.randn(ROWS, WIDTH, requires_grad=True), table, exact_top(right)


def test_agreement_is_the_mass_that_both_have(rows: tuple) -> None:
    own, table, top = rows
    q = (own @ table.T).softmax(-1)
    p = torch.zeros_like(q).scatter(1, top.ids, top.log_probs.exp())
    found = agreement(own, table, top)
    assert found.rows == ROWS
    assert found.rate == pytest.approx(torch.minimum(p, q).sum(-1).mean().item(), abs=1e-5)


def test_the_right_distribution_has_no_loss_and_full_agreement(rows: tuple) -> None:
    own, table, _ = rows
    top = exact_top((own @ table.T).detach())
    assert acceptance_loss(own, table, top).item() == pytest.approx(0, abs=1e-4)
    assert agreement(own, table, top).rate == pytest.approx(1, abs=1e-5)


def test_in_parts_it_is_the_same(rows: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    own, table, top = rows
    whole = acceptance_loss(own, table, top)
    whole.backward()
    expected, own.grad = own.grad.clone(), None
    monkeypatch.setattr(losses, "LOGITS", 3 * VOCABULARY)
    parts = acceptance_loss(own, table, top)
    parts.backward()
    assert parts.item() == pytest.approx(whole.item(), rel=1e-5)
    torch.testing.assert_close(own.grad, expected)


def test_following_it_raises_acceptance(rows: tuple) -> None:
    own, _, top = rows
    table = torch.nn.Parameter(torch.randn(VOCABULARY, WIDTH))
    free = torch.nn.Parameter(own.detach().clone())
    optimizer = torch.optim.Adam([free, table], 0.05)
    before = agreement(free, table, top).rate
    for _ in range(150):
        optimizer.zero_grad()
        acceptance_loss(free, table, top).backward()
        optimizer.step()
    assert agreement(free, table, top).rate > before + 0.3


def test_no_rows_have_no_loss() -> None:
    top = TopRows(torch.zeros(0, 4, dtype=torch.long), torch.zeros(0, 4), torch.zeros(0))
    none = torch.zeros(0, WIDTH, requires_grad=True)
    loss = acceptance_loss(none, torch.zeros(VOCABULARY, WIDTH), top)
    loss.backward()
    assert loss.item() == 0
