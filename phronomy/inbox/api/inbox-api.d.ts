// The HTTP API of the inbox. Made from its OpenAPI document: do not edit.

export interface paths {
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether the process answers */
        get: operations["live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether the store can be read */
        get: operations["ready"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Who you are, and what you may do */
        get: operations["me"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The requests that wait, oldest first
         * @description Needs the scope `read`.
         */
        get: operations["list_requests"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests/count": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How many requests wait
         * @description Needs the scope `read`.
         */
        get: operations["count_requests"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A request, with everything that a person needs to decide it
         * @description Needs the scope `read`.
         */
        get: operations["show_request"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests/{id}/decision": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How a request stands: its votes, its decision, and what became of the call
         * @description Needs the scope `read`.
         */
        get: operations["show_decision"];
        put?: never;
        /**
         * Decide a request, or vote on it
         * @description Needs the scope `decide`.
         */
        post: operations["decide"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests/{id}/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * What edited arguments come to; nothing is changed
         * @description Needs the scope `decide` and `read`.
         */
        post: operations["check"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/decisions:batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Give one answer to several requests that are not risky
         * @description Needs the scope `decide`.
         */
        post: operations["decide_several"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/requests/{id}/decision/by-key/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Whether a decision was recorded under an idempotency key, and what became of it
         * @description Needs the scope `decide`.
         */
        get: operations["decision_by_key"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The audit trail: a page as JSON, or all of it as text/csv or application/x-ndjson
         * @description Needs the scope `audit`.
         */
        get: operations["audit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/grants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The standing grants, oldest first
         * @description Needs the scope `grant`.
         */
        get: operations["list_grants"];
        put?: never;
        /**
         * Give a standing grant for calls like the one of a request
         * @description Needs the scope `grant`.
         */
        post: operations["give_grant"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/grants/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A standing grant
         * @description Needs the scope `grant`.
         */
        get: operations["show_grant"];
        put?: never;
        post?: never;
        /**
         * Revoke a standing grant; needs If-Match
         * @description Needs the scope `grant`.
         */
        delete: operations["revoke_grant"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/grants/{id}/signatures": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Sign a standing grant, as one more of those who give it; needs If-Match
         * @description Needs the scope `grant`.
         */
        post: operations["sign_grant"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Runs and their forks, newest first
         * @description Needs the scope `read`.
         */
        get: operations["list_runs"];
        put?: never;
        /**
         * Start a run
         * @description Needs the scope `start`.
         */
        post: operations["start_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A run, or a fork of one, and how it stands
         * @description Needs the scope `read`.
         */
        get: operations["show_run"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What happened in a run, without anything that was said
         * @description Needs the scope `read`.
         */
        get: operations["show_timeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The conversation of a run, its end first
         * @description Needs the scope `read`.
         */
        get: operations["show_messages"];
        put?: never;
        /**
         * Send a message to a run that waits or works
         * @description Needs the scope `start`.
         */
        post: operations["send_message"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End a run
         * @description Needs the scope `cancel`.
         */
        post: operations["cancel_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send an event from outside to a run
         * @description Needs the scope `send`.
         */
        post: operations["send_event"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The checkpoints of a run along one branch, with the forks that leave it
         * @description Needs the scope `read`.
         */
        get: operations["list_versions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/checkpoints/{checkpoint}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A checkpoint of a run
         * @description Needs the scope `read`.
         */
        get: operations["show_checkpoint"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What two checkpoints of a run differ in
         * @description Needs the scope `read`.
         */
        get: operations["show_diff"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/operations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What you could do to a run as it stands
         * @description Needs the scope `read`.
         */
        get: operations["list_operations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a run, so that somebody can let it go on later
         * @description Needs the scope `operate` and `read`.
         */
        post: operations["pause_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/checkpoints/{checkpoint}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fork a run at a checkpoint
         * @description Needs the scope `operate` and `read`.
         */
        post: operations["fork_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/checkpoints/{checkpoint}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Go back to a checkpoint: the conversation goes on from there
         * @description Needs the scope `operate` and `read`.
         */
        post: operations["restore_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{id}/step": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a breakpoint go on, and stop at the next point
         * @description Needs the scope `operate` and `decide` and `read`.
         */
        post: operations["step_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A stream of server-sent events that says what to look at again
         * @description Needs the scope `read`.
         */
        get: operations["events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This description, as OpenAPI 3.1 */
        get: operations["openapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AuditPage
         * @description A page of the audit trail, oldest first.
         */
        AuditPage: {
            /** Items */
            items: components["schemas"]["AuditRow"][];
            /**
             * Next
             * @default null
             */
            next: string | null;
        };
        /**
         * AuditRow
         * @description A record of the audit trail. It has no arguments and no results. `metadata` are the data that were given with a decision.
         */
        AuditRow: {
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Kind */
            kind: ("approve" | "reject" | "respond" | "skip" | "cancel" | "expire" | "supersede" | "edit") | ("fork" | "message" | "restore" | "unreadable");
            /** @default null */
            by: components["schemas"]["Person"] | null;
            /** @default null */
            behalf_of: components["schemas"]["Person"] | null;
            /**
             * Channel
             * @default null
             */
            channel: string | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /** Run Id */
            run_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /** Branch Id */
            branch_id: string;
            /** Checkpoint Id */
            checkpoint_id: string;
            /** Agent */
            agent: string;
            /**
             * Path
             * @default
             */
            path: string;
            /**
             * Pending Id
             * @default null
             */
            pending_id: string | null;
            /**
             * Tool Name
             * @default null
             */
            tool_name: string | null;
            /**
             * Why
             * @default null
             */
            why: ("approval" | "outcome_unknown" | "failed" | "question" | "breakpoint") | null;
            /**
             * Digest
             * @default null
             */
            digest: string | null;
            /**
             * Ran Digest
             * @default null
             */
            ran_digest: string | null;
            /**
             * Content Digest
             * @default null
             */
            content_digest: string | null;
            /**
             * Edited
             * @default false
             */
            edited: boolean;
            /**
             * Checked
             * @default false
             */
            checked: boolean;
            /**
             * Vote
             * @default false
             */
            vote: boolean;
            /**
             * Refused
             * @default false
             */
            refused: boolean;
            /**
             * Grant
             * @default null
             */
            grant: string | null;
            /**
             * Policy
             * @default null
             */
            policy: string | null;
            /** Metadata */
            metadata?: {
                [key: string]: unknown;
            };
        };
        /**
         * BatchBody
         * @description An answer to several requests. With `atomic`, all are decided or none. `metadata` is kept with each decision.
         */
        BatchBody: {
            /**
             * Answer
             * @enum {string}
             */
            answer: "approve" | "reject";
            /** Requests */
            requests: components["schemas"]["BatchItem"][];
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /**
             * Then
             * @default continue
             * @enum {string}
             */
            then: "continue" | "block" | "block_tool" | "end";
            /** Metadata */
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Atomic
             * @default false
             */
            atomic: boolean;
        };
        /**
         * BatchItem
         * @description A request of several that are decided together, with the digest that was shown.
         */
        BatchItem: {
            /** Id */
            id: string;
            /** Digest */
            digest: string;
        };
        /**
         * BatchResult
         * @description What came of one request of several.
         */
        BatchResult: {
            /** Id */
            id: string;
            /** @default null */
            decision: components["schemas"]["DecisionView"] | null;
            /** @default null */
            problem: components["schemas"]["ProblemOf"] | null;
        };
        /**
         * BatchView
         * @description What came of each request, in the order in which they were sent.
         */
        BatchView: {
            /** Results */
            results: components["schemas"]["BatchResult"][];
        };
        /**
         * CallOf
         * @description The call of a tool in a message. Values that the tool hides read `[redacted]`.
         */
        CallOf: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Arguments */
            arguments: string;
        };
        /**
         * CallState
         * @description A call of the open turn, and how it stands. `tool` is None if the model named a tool that there is none of.
         */
        CallState: {
            /**
             * Tool
             * @default null
             */
            tool: string | null;
            /** Status */
            status: string;
            /**
             * Pending Id
             * @default null
             */
            pending_id: string | null;
        };
        /**
         * CancelBody
         * @description Why a run is ended.
         */
        CancelBody: {
            /**
             * Reason
             * @default null
             */
            reason: string | null;
        };
        /**
         * ChangeOf
         * @description A place that an edit changes: the canonical text before and after; None where there is nothing.
         */
        ChangeOf: {
            /** Pointer */
            pointer: string;
            /** Before */
            before: string | null;
            /** After */
            after: string | null;
        };
        /**
         * CheckBody
         * @description Edited arguments, as JSON text, and the digest of the request as it was shown.
         */
        CheckBody: {
            /** Digest */
            digest: string;
            /** Args */
            args: string;
        };
        /**
         * Checked
         * @description What edited arguments come to. Nothing was changed. `by_tool`: the tool itself has read them.
         */
        Checked: {
            /** Valid */
            valid: boolean;
            /** Args */
            args: string;
            /** Digest */
            digest: string;
            /** Changes */
            changes: components["schemas"]["ChangeOf"][];
            /**
             * Errors
             * @default []
             */
            errors: components["schemas"]["FieldErrorOf"][];
            /** By Tool */
            by_tool: boolean;
        };
        /**
         * CheckpointView
         * @description A checkpoint of a run.
         *
         *     `state` is the state of a graph as canonical JSON text; None if there is none, or if this server does not have the graph, which
         *     `state_hidden` says. `conversation` is the end of what was said up to here, or the part before the message `before`.
         */
        CheckpointView: {
            /** Id */
            id: string;
            /**
             * Parent Id
             * @default null
             */
            parent_id: string | null;
            /** Branch Id */
            branch_id: string;
            /** Step */
            step: number;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /**
             * Kind
             * @enum {string}
             */
            kind: "step" | "stop" | "decision" | "partial" | "over" | "failed";
            /** Lines */
            lines: string[];
            /**
             * Head
             * @description Whether it is the last checkpoint of its branch.
             */
            head: boolean;
            /**
             * Aside
             * @description Whether it is of a short fork that is shown beside the branch.
             */
            aside: boolean;
            /** Run Id */
            run_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /** Agent */
            agent: string;
            /** Turn */
            turn: number;
            /** @default null */
            requester: components["schemas"]["Person"] | null;
            /** Input Tokens */
            input_tokens: number;
            /** Output Tokens */
            output_tokens: number;
            /**
             * State
             * @default null
             */
            state: string | null;
            /** State Hidden */
            state_hidden: boolean;
            /** Calls */
            calls: components["schemas"]["CallState"][];
            /** Decisions */
            decisions: components["schemas"]["DecisionTold"][];
            /** Nested */
            nested: components["schemas"]["NestedOf"][];
            conversation: components["schemas"]["MessagesView"];
            /** Operations */
            operations: components["schemas"]["OperationOf"][];
        };
        /**
         * Counted
         * @description How many requests wait. Counting stops at 1,000: `more` says that there are more, and `text` is then "1000+".
         */
        Counted: {
            /** Count */
            count: number;
            /** More */
            more: boolean;
            /** Text */
            text: string;
        };
        /**
         * DecisionBody
         * @description A decision about a request. `digest` is that of the request as it was shown.
         *
         *     `edit` needs `args`, the whole of the new arguments as JSON text. `reject` may have a `reason` and `then`. `respond` needs
         *     `content`, any JSON value: the result in place of the call's. `metadata`, an object of at most 16 KB, is kept with the decision,
         *     and changes nothing; only `skip` has none.
         */
        DecisionBody: {
            /**
             * Answer
             * @enum {string}
             */
            answer: "approve" | "edit" | "reject" | "respond" | "skip";
            /** Digest */
            digest: string;
            /**
             * Args
             * @default null
             */
            args: string | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /**
             * Then
             * @default continue
             * @enum {string}
             */
            then: "continue" | "block" | "block_tool" | "end";
            /**
             * Content
             * @default null
             */
            content: unknown;
            /** Metadata */
            metadata?: {
                [key: string]: unknown;
            };
        };
        /**
         * DecisionOf
         * @description A decision that was made. `args` are the edited arguments as canonical JSON text, if they were edited.
         *
         *     `metadata` are the data that were given with it. Both are left out for somebody without the scope `read`.
         */
        DecisionOf: {
            /**
             * Decision
             * @enum {string}
             */
            decision: "approve" | "reject" | "respond" | "skip" | "cancel" | "expire" | "supersede" | "edit";
            /** @default null */
            by: components["schemas"]["Person"] | null;
            /** @default null */
            behalf_of: components["schemas"]["Person"] | null;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Channel
             * @default null
             */
            channel: string | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /**
             * Then
             * @enum {string}
             */
            then: "continue" | "block" | "block_tool" | "end";
            /** Edited */
            edited: boolean;
            /**
             * Args
             * @default null
             */
            args: string | null;
            /**
             * Grant
             * @default null
             */
            grant: string | null;
            /** Metadata */
            metadata?: {
                [key: string]: unknown;
            };
        };
        /**
         * DecisionTold
         * @description A decision that was made up to a checkpoint.
         */
        DecisionTold: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "approve" | "reject" | "respond" | "skip" | "cancel" | "expire" | "supersede" | "edit";
            /** Pending Id */
            pending_id: string;
            /** @default null */
            by: components["schemas"]["Person"] | null;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Channel
             * @default null
             */
            channel: string | null;
        };
        /**
         * DecisionView
         * @description How a request stands after a decision or a vote. `decision` is None as long as more people have to decide.
         */
        DecisionView: {
            /** Id */
            id: string;
            /** Digest */
            digest: string;
            /**
             * Status
             * @enum {string}
             */
            status: "pending" | "expired" | "decided" | "set_aside" | "running" | "settled" | "asked_again";
            /** @default null */
            decision: components["schemas"]["DecisionOf"] | null;
            /**
             * Votes
             * @default []
             */
            votes: components["schemas"]["VoteOf"][];
            /**
             * Levels
             * @default []
             */
            levels: components["schemas"]["Level"][];
            /** @default null */
            outcome: components["schemas"]["Outcome"] | null;
            /**
             * Asked Again
             * @default null
             */
            asked_again: string | null;
            /**
             * Set Aside
             * @default null
             */
            set_aside: string | null;
            /**
             * Run Status
             * @enum {string}
             */
            run_status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
        };
        /**
         * DiffView
         * @description What two checkpoints differ in. `next` is the `first` of the rest; None at the end.
         */
        DiffView: {
            before: components["schemas"]["VersionOf"];
            after: components["schemas"]["VersionOf"];
            /** Items */
            items: components["schemas"]["DifferenceOf"][];
            /** Total */
            total: number;
            /**
             * Next
             * @default null
             */
            next: number | null;
        };
        /**
         * DifferenceOf
         * @description One thing that differs. `before` and `after` are None where there is nothing, and where `hidden` says that it may not be seen.
         */
        DifferenceOf: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "message" | "state" | "call" | "request" | "vote" | "decision" | "nested" | "metadata" | "number";
            /**
             * Change
             * @enum {string}
             */
            change: "added" | "removed" | "changed";
            /** Name */
            name: string;
            /**
             * Before
             * @default null
             */
            before: string | null;
            /**
             * After
             * @default null
             */
            after: string | null;
            /**
             * Hidden
             * @default false
             */
            hidden: boolean;
        };
        /**
         * EventBody
         * @description An event from outside: its name, and its payload, any JSON value.
         *
         *     `early` says what becomes of it if nothing waits for it yet: `first` keeps it if no trigger for such an event was there before,
         *     `always` keeps it also after that, and `never` refuses it.
         */
        EventBody: {
            /** Name */
            name: string;
            /**
             * Payload
             * @default null
             */
            payload: unknown;
            /**
             * Early
             * @default first
             * @enum {string}
             */
            early: "first" | "always" | "never";
        };
        /**
         * EventView
         * @description What became of an event: it has `fired` the trigger `pending_id`, or is `kept` until one waits for it.
         */
        EventView: {
            /** Id */
            id: string;
            /**
             * Status
             * @enum {string}
             */
            status: "fired" | "kept";
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /**
             * Pending Id
             * @default null
             */
            pending_id: string | null;
        };
        /**
         * FieldErrorOf
         * @description A place, as a JSON Pointer (RFC 6901), and what is wrong there.
         */
        FieldErrorOf: {
            /** Pointer */
            pointer: string;
            /** Detail */
            detail: string;
        };
        /**
         * ForkBody
         * @description A fork at a checkpoint, and the digest of the operation as it was shown. With `rerun`, calls that have completed run again.
         */
        ForkBody: {
            /** Digest */
            digest: string;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Rerun
             * @default false
             */
            rerun: boolean;
        };
        /**
         * ForkOf
         * @description A branch that is not shown whole. `at` is the checkpoint where it leaves what is shown; None if that is not shown.
         */
        ForkOf: {
            /** Branch Id */
            branch_id: string;
            /**
             * At
             * @default null
             */
            at: string | null;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /**
             * Goes On
             * @description Whether it is the branch that what is shown was forked from.
             */
            goes_on: boolean;
        };
        /**
         * Giver
         * @description One person's part in a grant.
         */
        Giver: {
            person: components["schemas"]["Person"];
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Channel
             * @default null
             */
            channel: string | null;
        };
        /**
         * GrantBody
         * @description A standing grant for calls like the one that a request shows. The request itself is not decided.
         *
         *     With `exactly`, it covers the arguments of the request alone; otherwise any arguments, or those for which the predicate named
         *     `condition` is true. Except for one run, it ends: at the time `until`, or after so many `uses`.
         */
        GrantBody: {
            /** Request */
            request: string;
            /** Digest */
            digest: string;
            /**
             * Scope
             * @default run
             * @enum {string}
             */
            scope: "run" | "thread" | "principal" | "tenant";
            /**
             * Exactly
             * @default true
             */
            exactly: boolean;
            /**
             * Condition
             * @default null
             */
            condition: string | null;
            /**
             * Until
             * @default null
             */
            until: string | null;
            /**
             * Uses
             * @default null
             */
            uses: number | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
        };
        /**
         * GrantView
         * @description A standing grant. `args` is canonical JSON text; None: any arguments, or you may not read. `etag` is what If-Match takes.
         */
        GrantView: {
            /** Id */
            id: string;
            /**
             * Etag
             * @default
             */
            etag: string;
            /** Agent */
            agent: string;
            /** Tool */
            tool: string;
            /** Source */
            source: string;
            /**
             * Endpoint
             * @default null
             */
            endpoint: string | null;
            /**
             * Args
             * @default null
             */
            args: string | null;
            /**
             * Condition
             * @default null
             */
            condition: string | null;
            /**
             * Scope
             * @enum {string}
             */
            scope: "run" | "thread" | "principal" | "tenant";
            /**
             * Run Id
             * @default null
             */
            run_id: string | null;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /**
             * Requester
             * @default null
             */
            requester: string | null;
            /**
             * Until
             * @default null
             */
            until: string | null;
            /**
             * Uses
             * @default null
             */
            uses: number | null;
            /**
             * Uses Left
             * @default null
             */
            uses_left: number | null;
            /** Count */
            count: number;
            /** Givers */
            givers: components["schemas"]["Giver"][];
            /**
             * Giver Count
             * @description How many people give it. How many it takes, the approval of the tool says.
             */
            giver_count: number;
            /**
             * At
             * @default null
             */
            at: string | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /** @default null */
            revoked_by: components["schemas"]["Person"] | null;
            /**
             * Revoked At
             * @default null
             */
            revoked_at: string | null;
            /**
             * Revoked Reason
             * @default null
             */
            revoked_reason: string | null;
        };
        /**
         * GrantsView
         * @description Standing grants, oldest first. `unreadable` are grants that cannot be read: they permit nothing.
         */
        GrantsView: {
            /** Items */
            items: components["schemas"]["GrantView"][];
            /**
             * Unreadable
             * @default []
             */
            unreadable: components["schemas"]["Unreadable"][];
        };
        /**
         * KeyView
         * @description A decision by its idempotency key. `recorded` says whether the store has one under it; `decision` is None without its run.
         */
        KeyView: {
            /** Recorded */
            recorded: boolean;
            /** @default null */
            decision: components["schemas"]["DecisionView"] | null;
        };
        /**
         * Level
         * @description Who is asked at one level: the tool itself (an empty `of`) or the policy of an agent; and how the votes stand there.
         */
        Level: {
            /** Of */
            of: string;
            /**
             * Roles
             * @default []
             */
            roles: string[];
            /**
             * Ids
             * @default []
             */
            ids: string[];
            /**
             * Predicates
             * @default []
             */
            predicates: string[];
            /**
             * Not Requester
             * @default false
             */
            not_requester: boolean;
            /** Needed */
            needed: number;
            /** Counted */
            counted: number;
            /** Rejections */
            rejections: number;
            /** Rejected */
            rejected: number;
            /**
             * Who
             * @description Who may decide there now, in words.
             * @default null
             */
            who: string | null;
        };
        /**
         * May
         * @description What this person may do about a request at this moment. `why_not` says why there are no answers.
         *
         *     `said` says in words, for people, why there are none, or why they may not approve.
         *
         *     It promises nothing: whether a decision counts is judged when it is made. `uncertain`: only the agent's code can tell.
         */
        May: {
            /** Answers */
            answers: ("approve" | "edit" | "reject" | "respond" | "skip")[];
            /**
             * Why Not
             * @default null
             */
            why_not: ("expired" | "voted" | "not_an_approver" | "not_offered") | null;
            /**
             * Said
             * @default null
             */
            said: string | null;
            /**
             * Uncertain
             * @default false
             */
            uncertain: boolean;
        };
        /**
         * Me
         * @description Who is signed in, and what they may do in the inbox at all.
         */
        Me: {
            principal: components["schemas"]["Person"];
            /** Tenant */
            tenant: string;
            /** Scopes */
            scopes: ("read" | "decide" | "grant" | "audit" | "start" | "cancel" | "operate" | "send")[];
            /** Via */
            via: string;
            /**
             * Signed In At
             * @default null
             */
            signed_in_at: string | null;
            /**
             * Csrf
             * @description The value of the header X-CSRF-Token; none for a token's bearer.
             * @default null
             */
            csrf: string | null;
        };
        /**
         * MessageBody
         * @description A message to a run that waits or works.
         */
        MessageBody: {
            /** Text */
            text: string;
        };
        /**
         * MessageOf
         * @description A message of a conversation, by its number.
         */
        MessageOf: {
            /** N */
            n: number;
            /**
             * Role
             * @enum {string}
             */
            role: "user" | "assistant" | "tool";
            /** Text */
            text: string;
            /**
             * Tool Calls
             * @default []
             */
            tool_calls: components["schemas"]["CallOf"][];
            /**
             * Tool Call Id
             * @default null
             */
            tool_call_id: string | null;
            /**
             * Settlement
             * @default null
             */
            settlement: ("completed" | "responded" | "failed" | "invalid" | "rejected" | "skipped" | "expired" | "cancelled" | "superseded") | null;
        };
        /**
         * MessagesView
         * @description A part of a conversation, oldest first. `before` is what to ask for next; None at its beginning.
         */
        MessagesView: {
            /** Items */
            items: components["schemas"]["MessageOf"][];
            /** Total */
            total: number;
            /**
             * Before
             * @default null
             */
            before: number | null;
        };
        /**
         * NestedOf
         * @description A nested run that has stopped, by its path.
         */
        NestedOf: {
            /** Path */
            path: string;
            /** Agent */
            agent: string;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /** Step */
            step: number;
        };
        /**
         * OperationOf
         * @description What could be done to a run. `digest` is sent along when it is done; `why_not` says why it cannot be done now.
         */
        OperationOf: {
            /**
             * What
             * @enum {string}
             */
            what: "pause" | "cancel" | "fork" | "restore" | "step";
            /**
             * Request
             * @default null
             */
            request: string | null;
            /** Digest */
            digest: string;
            /**
             * Why Not
             * @default null
             */
            why_not: string | null;
            /**
             * Changes
             * @description How the agent has changed, where that is to be accepted.
             * @default []
             */
            changes: string[];
        };
        /**
         * OperationsView
         * @description What you could do to a run as it stands, by your scopes.
         */
        OperationsView: {
            /** Items */
            items: components["schemas"]["OperationOf"][];
        };
        /**
         * Outcome
         * @description The end of a call: its kind, and the text that the model reads; the text is null for somebody without the scope `read`.
         */
        Outcome: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "completed" | "responded" | "failed" | "invalid" | "rejected" | "skipped" | "expired" | "cancelled" | "superseded";
            /** Text */
            text: string | null;
        };
        /**
         * PauseBody
         * @description Why a run is paused, and the digest of the operation as it was shown.
         */
        PauseBody: {
            /** Digest */
            digest: string;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
        };
        /**
         * Person
         * @description A person or a program.
         */
        Person: {
            /** Id */
            id: string;
            /**
             * Name
             * @default null
             */
            name: string | null;
            /**
             * Kind
             * @default human
             * @enum {string}
             */
            kind: "human" | "service";
            /**
             * Roles
             * @default []
             */
            roles: string[];
        };
        /**
         * ProblemOf
         * @description What went wrong (RFC 9457). `type` is the address of a page that says what to do; each kind has members of its own.
         */
        ProblemOf: {
            /** Type */
            type: string;
            /** Title */
            title: string;
            /** Status */
            status: number;
            /** Detail */
            detail: string;
            /**
             * Instance
             * @default null
             */
            instance: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * RequestFull
         * @description A request with everything that a person needs to decide it, and where it stands.
         *
         *     `status` says whether it waits, and how far what was decided is. `args` is canonical JSON text, and `arguments` a parsed copy
         *     of it. `schema` is the JSON Schema of the arguments, where the store has it, and `result_schema` that of the result of an
         *     external tool.
         */
        RequestFull: {
            /** Id */
            id: string;
            /** Digest */
            digest: string;
            /**
             * Status
             * @enum {string}
             */
            status: "pending" | "expired" | "decided" | "set_aside" | "running" | "settled" | "asked_again";
            /**
             * Title
             * @default null
             */
            title: string | null;
            /**
             * Context
             * @default null
             */
            context: string | null;
            tool: components["schemas"]["ToolOf"];
            /**
             * Description
             * @default null
             */
            description: string | null;
            /** Args */
            args: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
            /**
             * Schema
             * @default null
             */
            schema: {
                [key: string]: unknown;
            } | null;
            /**
             * Result Schema
             * @default null
             */
            result_schema: {
                [key: string]: unknown;
            } | null;
            /** Agent */
            agent: string;
            /** Path */
            path: string;
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /** Checkpoint Id */
            checkpoint_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Why
             * @enum {string}
             */
            why: "approval" | "outcome_unknown" | "failed" | "question" | "breakpoint";
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /**
             * Point
             * @default null
             */
            point: string | null;
            /**
             * Breakpoint
             * @default null
             */
            breakpoint: string | null;
            /** @default null */
            requester: components["schemas"]["Person"] | null;
            /**
             * Requested At
             * Format: date-time
             */
            requested_at: string;
            /**
             * Expires At
             * @default null
             */
            expires_at: string | null;
            /**
             * On Expiry
             * @enum {string}
             */
            on_expiry: "reject" | "cancel" | "stay";
            /**
             * Conversation
             * @default []
             */
            conversation: components["schemas"]["Shown"][];
            /**
             * Policy
             * @default null
             */
            policy: string | null;
            /**
             * Levels
             * @default []
             */
            levels: components["schemas"]["Level"][];
            /**
             * Votes
             * @default []
             */
            votes: components["schemas"]["VoteOf"][];
            may: components["schemas"]["May"];
            /** @default null */
            decision: components["schemas"]["DecisionOf"] | null;
            /** @default null */
            outcome: components["schemas"]["Outcome"] | null;
            /**
             * Asked Again
             * @description The id of the request that stands in its place.
             * @default null
             */
            asked_again: string | null;
            /**
             * Set Aside
             * @description Why a worker could not carry the decision out: an operator is needed.
             * @default null
             */
            set_aside: string | null;
            /**
             * Run Status
             * @enum {string}
             */
            run_status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
        };
        /**
         * RequestRow
         * @description A request in a list.
         */
        RequestRow: {
            /** Id */
            id: string;
            /** Digest */
            digest: string;
            /**
             * Title
             * @default null
             */
            title: string | null;
            tool: components["schemas"]["ToolOf"];
            /** Agent */
            agent: string;
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Why
             * @enum {string}
             */
            why: "approval" | "outcome_unknown" | "failed" | "question" | "breakpoint";
            /** @default null */
            requester: components["schemas"]["Person"] | null;
            /**
             * Requested At
             * Format: date-time
             */
            requested_at: string;
            /**
             * Expires At
             * @default null
             */
            expires_at: string | null;
            /**
             * On Expiry
             * @enum {string}
             */
            on_expiry: "reject" | "cancel" | "stay";
            /**
             * Args
             * @description The arguments as canonical JSON text: what the digest covers, and what runs.
             */
            args: string;
            /** Votes */
            votes: number;
            may: components["schemas"]["May"];
        };
        /**
         * RequestsPage
         * @description A page of requests. `next` is the cursor of the page after it; None at the end.
         *
         *     `unreadable` are requests that cannot be read, so that nobody can decide them. They count for the limit of the page.
         */
        RequestsPage: {
            /** Items */
            items: components["schemas"]["RequestRow"][];
            /**
             * Next
             * @default null
             */
            next: string | null;
            /**
             * Unreadable
             * @default []
             */
            unreadable: components["schemas"]["Unreadable"][];
        };
        /**
         * RestoreBody
         * @description Going back to a checkpoint, and the digest of the operation as it was shown.
         *
         *     With `accept_changes`, also where the agent has changed in a way that concerns what waits there.
         */
        RestoreBody: {
            /** Digest */
            digest: string;
            /**
             * Accept Changes
             * @default false
             */
            accept_changes: boolean;
        };
        /**
         * RunFull
         * @description A run, and its last checkpoint.
         */
        RunFull: {
            /** Id */
            id: string;
            /** Run Id */
            run_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /** Agent */
            agent: string;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Parent
             * @default null
             */
            parent: string | null;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /** Held */
            held: boolean;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /**
             * Changed At
             * Format: date-time
             */
            changed_at: string;
            /**
             * Waits For
             * @description The ids of the requests that wait in it.
             * @default []
             */
            waits_for: string[];
            /**
             * Title
             * @description What the first of these requests is about: its title, or its tool.
             * @default null
             */
            title: string | null;
            /**
             * Words
             * @description The first words of the input, which the user wrote: what guardrails let through, in one line and cut.
             * @default null
             */
            words: string | null;
            /** @default null */
            requester: components["schemas"]["Person"] | null;
            /**
             * Unreadable
             * @description What is wrong with its rows, if they cannot be read: nobody can carry it on or decide in it until that is mended.
             * @default null
             */
            unreadable: string | null;
            /** Checkpoint Id */
            checkpoint_id: string;
            /** Step */
            step: number;
            /** Messages */
            messages: number;
            /**
             * Output
             * @default null
             */
            output: unknown;
            /**
             * Can Cancel
             * @description Whether this server has its agent, and you may end the run.
             */
            can_cancel: boolean;
        };
        /**
         * RunRow
         * @description A run, or a fork of one, and how it stands. `held`: a worker drives it at this moment.
         */
        RunRow: {
            /** Id */
            id: string;
            /** Run Id */
            run_id: string;
            /**
             * Thread Id
             * @default null
             */
            thread_id: string | null;
            /** Agent */
            agent: string;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Parent
             * @default null
             */
            parent: string | null;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /** Held */
            held: boolean;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /**
             * Changed At
             * Format: date-time
             */
            changed_at: string;
            /**
             * Waits For
             * @description The ids of the requests that wait in it.
             * @default []
             */
            waits_for: string[];
            /**
             * Title
             * @description What the first of these requests is about: its title, or its tool.
             * @default null
             */
            title: string | null;
            /**
             * Words
             * @description The first words of the input, which the user wrote: what guardrails let through, in one line and cut.
             * @default null
             */
            words: string | null;
            /** @default null */
            requester: components["schemas"]["Person"] | null;
            /**
             * Unreadable
             * @description What is wrong with its rows, if they cannot be read: nobody can carry it on or decide in it until that is mended.
             * @default null
             */
            unreadable: string | null;
        };
        /**
         * RunsPage
         * @description A page of runs, newest first.
         */
        RunsPage: {
            /** Items */
            items: components["schemas"]["RunRow"][];
            /**
             * Next
             * @default null
             */
            next: string | null;
        };
        /**
         * SentMessage
         * @description A message that is stored for a run. `id` is that of the event `message_added`; `status` is how the run stands.
         */
        SentMessage: {
            /** Id */
            id: string;
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
        };
        /**
         * Shown
         * @description A message of the conversation, as the agent shows it with its requests.
         */
        Shown: {
            /**
             * Role
             * @enum {string}
             */
            role: "user" | "assistant" | "tool";
            /** Text */
            text: string;
            /**
             * Tools
             * @default []
             */
            tools: string[];
        };
        /**
         * StartBody
         * @description A run to start: the agent by its name, and its input.
         */
        StartBody: {
            /** Agent */
            agent: string;
            /** Input */
            input: string;
            /**
             * Thread
             * @default null
             */
            thread: string | null;
            /**
             * Label
             * @default null
             */
            label: string | null;
        };
        /**
         * StepBody
         * @description A step from the breakpoint `request`, and the digest of the operation as it was shown. `pace` says where the next stop is.
         *
         *     `step`: at the next boundary. `into`: at the next point, also of a nested run. `over`: at the next point of this run, or of one
         *     around it. `out`: at the next point of a run around it.
         */
        StepBody: {
            /** Request */
            request: string;
            /** Digest */
            digest: string;
            /**
             * Pace
             * @default step
             * @enum {string}
             */
            pace: "step" | "into" | "over" | "out";
        };
        /**
         * TimelineEntryOf
         * @description One thing that happened in a run, without any content.
         */
        TimelineEntryOf: {
            /** Id */
            id: number;
            /** Type */
            type: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Branch Id */
            branch_id: string;
            /**
             * Agent
             * @default null
             */
            agent: string | null;
            /**
             * Path
             * @default
             */
            path: string;
            /**
             * Checkpoint Id
             * @default null
             */
            checkpoint_id: string | null;
            /** Facts */
            facts: {
                [key: string]: unknown;
            };
        };
        /**
         * TimelineView
         * @description The newest entries of a run's timeline, oldest first. `dropped` is the number of those before.
         */
        TimelineView: {
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /** Dropped */
            dropped: number;
            /** Entries */
            entries: components["schemas"]["TimelineEntryOf"][];
        };
        /**
         * ToolOf
         * @description The tool that waits.
         */
        ToolOf: {
            /** Name */
            name: string;
            /** Source */
            source: string;
            /**
             * Endpoint
             * @default null
             */
            endpoint: string | null;
            /**
             * Risk
             * @default null
             */
            risk: string | null;
            /**
             * External
             * @default false
             */
            external: boolean;
        };
        /**
         * Unreadable
         * @description A stored row that cannot be read, so that it is not in its list: it is damaged, or was written by a later release.
         */
        Unreadable: {
            /** Kind */
            kind: string;
            /** Id */
            id: string;
            /**
             * Run Id
             * @default null
             */
            run_id: string | null;
            /**
             * Branch Id
             * @default null
             */
            branch_id: string | null;
            /** Detail */
            detail: string;
        };
        /**
         * VersionOf
         * @description A checkpoint of a run in its version tree. `lines` say in words what happened there, and nothing that was said.
         */
        VersionOf: {
            /** Id */
            id: string;
            /**
             * Parent Id
             * @default null
             */
            parent_id: string | null;
            /** Branch Id */
            branch_id: string;
            /** Step */
            step: number;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Label
             * @default null
             */
            label: string | null;
            /**
             * Status
             * @enum {string}
             */
            status: "running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped";
            /**
             * Kind
             * @enum {string}
             */
            kind: "step" | "stop" | "decision" | "partial" | "over" | "failed";
            /** Lines */
            lines: string[];
            /**
             * Head
             * @description Whether it is the last checkpoint of its branch.
             */
            head: boolean;
            /**
             * Aside
             * @description Whether it is of a short fork that is shown beside the branch.
             */
            aside: boolean;
        };
        /**
         * VersionsView
         * @description A part of the versions of a run, along one branch, oldest first. `before` is what to ask for next; None at its beginning.
         *
         *     `first` is the number of the first one, of `total`. `more` is the number of forks that are left out.
         */
        VersionsView: {
            /** Run Id */
            run_id: string;
            /** Branch Id */
            branch_id: string;
            /** Items */
            items: components["schemas"]["VersionOf"][];
            /** Forks */
            forks: components["schemas"]["ForkOf"][];
            /** First */
            first: number;
            /** Total */
            total: number;
            /**
             * Before
             * @default null
             */
            before: number | null;
            /**
             * More
             * @default 0
             */
            more: number;
        };
        /**
         * VoteOf
         * @description A vote that was cast. `metadata` are the data that were given with it; empty for somebody without the scope `read`.
         */
        VoteOf: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "approve" | "reject" | "respond";
            by: components["schemas"]["Person"];
            /** @default null */
            behalf_of: components["schemas"]["Person"] | null;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /**
             * Channel
             * @default null
             */
            channel: string | null;
            /**
             * Reason
             * @default null
             */
            reason: string | null;
            /** Metadata */
            metadata?: {
                [key: string]: unknown;
            };
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    live: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    ready: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    me: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Me"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    list_requests: {
        parameters: {
            query?: {
                state?: "pending" | "expired";
                tool?: string;
                agent?: string;
                thread?: string;
                run?: string;
                risk?: string;
                label?: string;
                requester?: string;
                mine?: boolean;
                older_than?: number;
                newer_than?: number;
                expires_within?: number;
                text?: string;
                triggers?: boolean;
                order?: "oldest" | "newest";
                limit?: number;
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description The next page (RFC 8288). */
                    Link?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RequestsPage"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `bad-cursor`: this is no cursor of this list */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    count_requests: {
        parameters: {
            query?: {
                state?: "pending" | "expired";
                tool?: string;
                agent?: string;
                thread?: string;
                run?: string;
                risk?: string;
                label?: string;
                requester?: string;
                mine?: boolean;
                older_than?: number;
                newer_than?: number;
                expires_within?: number;
                text?: string;
                triggers?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Counted"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_request: {
        parameters: {
            query?: never;
            header?: {
                /** @description The ETag of what you have. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description A weak tag over what you see. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RequestFull"];
                };
            };
            /** @description You have it already. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_decision: {
        parameters: {
            query?: never;
            header?: {
                /** @description The ETag of what you have. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description A weak tag over what you see. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DecisionView"];
                };
            };
            /** @description You have it already. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    decide: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DecisionBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DecisionView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `digest-mismatch`: the request is not the one that you were shown; `already-decided`: this request is decided; `already-voted`: you have voted on this request before; `expired`: the time of this request was over; `withdrawn`: this request does not wait any more; `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid; `invalid-edit`: the edited arguments do not fit the tool */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    check: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CheckBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checked"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `digest-mismatch`: the request is not the one that you were shown */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid-edit`: the edited arguments do not fit the tool; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    decide_several: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BatchBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `digest-mismatch`: the request is not the one that you were shown; `already-decided`: this request is decided; `already-voted`: you have voted on this request before; `expired`: the time of this request was over; `withdrawn`: this request does not wait any more; `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    decision_by_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    audit: {
        parameters: {
            query?: {
                run?: string;
                thread?: string;
                request?: string;
                since?: string;
                until?: string;
                format?: "json" | "csv" | "ndjson";
                limit?: number;
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description The next page (RFC 8288). */
                    Link?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditPage"];
                    "text/csv": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description `bad-request`: the request cannot be understood; `bad-cursor`: this is no cursor of this list */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    list_grants: {
        parameters: {
            query?: {
                agent?: string;
                tool?: string;
                all?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantsView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    give_grant: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GrantBody"];
            };
        };
        responses: {
            /** @description Made */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `digest-mismatch`: the request is not the one that you were shown; `expired`: the time of this request was over; `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_grant: {
        parameters: {
            query?: never;
            header?: {
                /** @description The ETag of what you have. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description A weak tag over what you see. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantView"];
                };
            };
            /** @description You have it already. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    revoke_grant: {
        parameters: {
            query?: never;
            header: {
                /** @description The ETag of what you have read, and not `*`. */
                "If-Match": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `precondition-needed`: there is no if-match */
            428: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    sign_grant: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
                /** @description The ETag of what you have read, and not `*`. */
                "If-Match": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GrantView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `precondition-needed`: there is no if-match */
            428: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    list_runs: {
        parameters: {
            query?: {
                thread?: string;
                agent?: string;
                status?: ("running" | "suspended" | "failed" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped")[];
                limit?: number;
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    /** @description The next page (RFC 8288). */
                    Link?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunsPage"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `bad-cursor`: this is no cursor of this list */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    start_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StartBody"];
            };
        };
        responses: {
            /** @description Begun */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_timeline: {
        parameters: {
            query?: {
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TimelineView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_messages: {
        parameters: {
            query?: {
                before?: number;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MessagesView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    send_message: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MessageBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SentMessage"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    cancel_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CancelBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    send_event: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EventBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `refused`: this cannot be done as things are; `already-decided`: this request is decided; `withdrawn`: this request does not wait any more */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    list_versions: {
        parameters: {
            query?: {
                before?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionsView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_checkpoint: {
        parameters: {
            query?: {
                before?: number;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
                checkpoint: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckpointView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    show_diff: {
        parameters: {
            query: {
                before: string;
                after: string;
                first?: number;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DiffView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    list_operations: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationsView"];
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    pause_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PauseBody"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are; `already-decided`: this request is decided; `withdrawn`: this request does not wait any more; `expired`: the time of this request was over; `already-voted`: you have voted on this request before */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    fork_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
                checkpoint: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ForkBody"];
            };
        };
        responses: {
            /** @description Made */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are; `already-decided`: this request is decided; `withdrawn`: this request does not wait any more; `expired`: the time of this request was over; `already-voted`: you have voted on this request before */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    restore_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
                checkpoint: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RestoreBody"];
            };
        };
        responses: {
            /** @description Made */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are; `already-decided`: this request is decided; `withdrawn`: this request does not wait any more; `expired`: the time of this request was over; `already-voted`: you have voted on this request before */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    step_run: {
        parameters: {
            query?: never;
            header: {
                /** @description A text of your own: the same when you send it again. */
                "Idempotency-Key": string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StepBody"];
            };
        };
        responses: {
            /** @description Begun */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunFull"];
                };
            };
            /** @description `bad-request`: the request cannot be understood; `key-missing`: there is no idempotency-key */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-an-approver`: you may not decide this request; `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `in-progress`: somebody is working on this at the moment; `refused`: this cannot be done as things are; `already-decided`: this request is decided; `withdrawn`: this request does not wait any more; `expired`: the time of this request was over; `already-voted`: you have voted on this request before */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `stale`: this has changed since you read it */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `key-reused`: this idempotency-key was used for something else; `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    events: {
        parameters: {
            query?: {
                after?: string;
            };
            header?: {
                /** @description The id of the last event that you have seen. */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-signed-in`: nobody is signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site; `forbidden`: you may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `invalid`: a value is not valid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
    openapi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            /** @description `bad-request`: the request cannot be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `cross-site`: the request came from another site */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `not-found`: there is nothing here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-method`: this address does not take this method */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `timed-out`: the request took too long to arrive */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `too-large`: the body is too large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-type`: the body is of the wrong type */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `wrong-host`: this server does not answer under this name */
            421: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `slow-down`: too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `failed`: the server has failed; `unreadable`: a stored row cannot be read */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
            /** @description `unavailable`: the store cannot be reached */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemOf"];
                };
            };
        };
    };
}
