package request

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// entry is the record of a request as this process has it, and which version of it the
// store has.
type entry struct {
	store    *state.Store
	logger   *slog.Logger
	observe  func(command string, o Outcome)
	load     func(ctx context.Context, id string) (Record, int64, error)
	platform platform.Platform
	rec      *Record
	version  int64
	untold   bool // the final message could not be sent
}

// fate returns how the request ended for its user: Done only if every file has arrived.
func (en *entry) fate() Outcome {
	if en.rec.Outcome != Done {
		return en.rec.Outcome
	}
	fate := Done
	for _, text := range en.rec.Texts {
		if text.Lost {
			return Undelivered
		}
	}
	for _, out := range en.rec.Outputs {
		switch {
		case out.State == Lost || out.State == TooBig && out.Link == "":
			return Undelivered
		case out.State == Kept && fate == Done:
			fate = Hidden
		case out.State == Unsure:
			fate = InDoubt
		case out.State == TooBig && en.untold:
			return Undelivered // its link was shown
		}
	}
	return fate
}

// finish removes the request from the list of unfinished ones.
func (en *entry) finish(ctx context.Context) error {
	if err := en.settleCharge(ctx); err != nil {
		return err
	}
	en.rec.Phase = Over
	en.rec.Graph = nil
	for i := range en.rec.Texts {
		en.rec.Texts[i].Text = ""
	}
	end := state.End{
		Who: en.rec.Tenant(), Group: en.rec.Counted, Asked: en.rec.Asked, Command: en.rec.Command, Outcome: string(en.fate()), Done: en.rec.Outcome == Done,
	}
	if en.rec.Outcome == Done {
		end.Took = en.rec.Took
	} else {
		end.Refund = en.rec.Price
	}
	if en.rec.Metered {
		end.Price = (en.rec.Took + 999) / 1000
	}
	err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		_, err := en.store.Requests.Finish(ctx, en.rec.ID, en.version, en.rec, end)
		return err
	}, isUnavailable)
	if err != nil {
		en.rec.Phase = Ended // it is not over yet
		return err
	}
	en.observe(en.rec.Command, en.fate())
	return nil
}

// save stores the record, and keeps trying while Redis is unavailable.
func (en *entry) save(ctx context.Context) error {
	return retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		version, err := en.store.Requests.Save(ctx, en.rec.ID, en.version, en.rec)
		if err == nil {
			en.version = version
		}
		return err
	}, isUnavailable)
}

// reload takes over the record as another process has stored it, plus what is certain here:
// which files have arrived, and that the user has cancelled.
func (en *entry) reload(ctx context.Context) error {
	rec, version, err := en.load(ctx, en.rec.ID)
	if err != nil {
		return err
	}
	for i := range rec.Outputs {
		out := &rec.Outputs[i]
		if i < len(en.rec.Outputs) && out.State == Sending && en.rec.Outputs[i].State == Arrived {
			*out = en.rec.Outputs[i]
		}
	}
	rec.Cancel = rec.Cancel || en.rec.Cancel
	rec.doubt(en.platform)
	*en.rec, en.version = rec, version
	return nil
}

// end records how the run ended.
func (en *entry) end(ctx context.Context, outcome Outcome, reason string) error {
	en.rec.Phase, en.rec.Outcome, en.rec.Reason = Ended, outcome, reason
	return en.save(ctx)
}

// noteShown records which pictures of the request the messages with outputs show, for
// replies to them. If that fails, only such replies do not work.
func (en *entry) noteShown(ctx context.Context, in platform.Chat, group ...*Output) {
	at := map[string][]int{}
	for i := range en.rec.Outputs {
		if out := &en.rec.Outputs[i]; out.Message != "" && slices.Contains(group, out) {
			at[out.Message] = append(at[out.Message], i)
		}
	}
	for message, outputs := range at {
		en.noteMessage(ctx, in, message, outputs...)
	}
}

// noteMessage does the same for one message.
func (en *entry) noteMessage(ctx context.Context, in platform.Chat, message string, outputs ...int) {
	name := MessageName(en.rec.Platform, in.ID, message)
	err := en.store.Put(ctx, MessageKind, name, en.rec.ID, PictureKeep)
	outputs = slices.DeleteFunc(outputs, func(i int) bool { return !isPicture(en.rec.Outputs[i].Ref.Filename) })
	if err == nil && len(outputs) > 0 {
		err = en.store.Put(ctx, PictureKind, name, Shown{Request: en.rec.ID, Outputs: outputs}, PictureKeep)
	}
	if err != nil {
		en.logger.Warn("cannot note what a message shows", "request", en.rec.ID, "error", err)
	}
}

// taken reports whether a message of the chat is known to be something else than what is looked
// for. The one that is may be noted as this request's, if the bridge was killed right after.
func (en *entry) taken(ctx context.Context, message string) (bool, error) {
	var of string
	err := en.store.Get(ctx, MessageKind, MessageName(en.rec.Platform, en.rec.Chat.ID, message), &of)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	own := message == en.rec.Status || slices.Contains(en.rec.Copies, message) ||
		slices.ContainsFunc(en.rec.Outputs, func(out Output) bool { return out.Message == message })
	return own || of != en.rec.ID, err
}

// settleCharge decides whether the payment is refunded, before the request is over: if the
// bridge is killed in between, it decides the same again.
func (en *entry) settleCharge(ctx context.Context) error {
	if en.rec.Charge == "" {
		return nil
	}
	to := state.Settled
	if !en.rec.earned() {
		to = state.Refund
	}
	err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		_, err := en.store.Payments.Settle(ctx, state.Charge{ID: en.rec.Charge, Price: en.rec.Paid}, to, 0)
		return err
	}, isUnavailable)
	if errors.Is(err, state.ErrNotFound) {
		en.logger.Error("a payment is no longer known", "request", en.rec.ID, "charge", en.rec.Charge)
		return nil
	}
	return err
}
