"""The rules of a run: what comes next, and what follows from what happened. Pure functions over records; nothing here acts.

A run is a state machine. Its state is a `Checkpoint`, and two functions move it:

    plan(state, spec)      -> Move         what to do next
    apply(state, outcome)  -> Checkpoint   the state after what happened

The engine performs a move (it asks a model, asks a human's handler, runs a tool) and reports outcomes. `apply` folds each
outcome in, and the engine plans again, until there is nothing to do: the run has ended, or it waits for a human.

Why two pure functions. A stop may last for months and end in another process, with another release of the program. What a
thread or a coroutine knows cannot be stored; a record can. And a function without clock, chance or network can be tested with
every outcome in every state, which `docs/transitions.md` shows: that page is drawn by applying them.

States. `phase` names five of them: asking, paused, acting, finishing, ended. `table.py` says what each is.

Each open call has a status of its own. On the straight way it is `new` (not judged), then `ready` (it may run), `started`,
`settled`. A call that needs approval is `asking` (a handler is asked) or `pending` (a human is) before it is `ready`. A call whose
inner run has stopped is `nested`. A call that failed, and is to be tried when the run is resumed, is `failed`.

`TABLE` in `table.py` says which outcome is legal in which state, and which states may follow. An outcome that is not legal there
raises `IllegalOutcome`, and changes nothing. So a bug in the engine, or a forged row, stops a run; it cannot let a call past
its approval.

Why a log. What happened between two checkpoints (a call began, a call settled) is stored as an outcome of its own, in the
journal of the checkpoint before it. `current` folds the journal into the state. A process that dies in between leaves every
outcome that it has stored, so a settled call is never run again, and a call that began without an end is known as such: its
outcome is unknown, and a human is asked.

What a claim is. Only one worker may move a run at a time. It holds the claim of the branch: an owner, a number that grows with
each new owner (the fence), and a time at which the claim lapses (the lease). Each write names the fence, and the store refuses
one that is out of date. The rules know nothing of claims: whoever has one calls them.

Where things are: `table.py` has the states; `transitions.py` has `plan` and `apply`; `open_calls.py` and `voted_calls.py`
what becomes of one call; `votes.py` how votes are counted, `reminders.py` when people are reminded; `added_messages.py` what is said
to a run while it is under way; `limits.py` the bounds of a run; `authorization.py` the last look before a tool's body is entered;
`texts_for_model.py` every sentence that the model is told by the rules.
"""
