package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// refundCommand is the operator's command that refunds a payment.
	refundCommand = "refund"
	// refundTick is how often due refunds are looked for.
	refundTick = time.Second
	// refundTry bounds one attempt; firstRefund and maxRefund bound the pauses in between.
	refundTry   = 20 * time.Second
	firstRefund = 5 * time.Second
	maxRefund   = time.Hour
	// shownCharges is how many payments /paysupport lists.
	shownCharges = 5
)

// refunds pays back, and answers those who ask for it.
type refunds struct {
	store    *state.Store
	runner   *request.Runner
	platform func(name string) platform.Platform
	contact  string
	logger   *slog.Logger
	find     *finder
}

// run refunds what is due until ctx ends. Each refund is retried until the platform
// confirms it.
func (rf *refunds) run(ctx context.Context) {
	for retry.Sleep(ctx, refundTick) {
		charges, err := rf.store.Payments.Refunds(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			rf.logger.Warn("cannot read which refunds are due", "error", err)
		}
		for _, charge := range charges {
			if err := rf.one(ctx, charge); err != nil && ctx.Err() == nil {
				rf.logger.Warn("cannot record that a payment was refunded", "charge", charge.ID, "error", err)
			}
		}
	}
}

func (rf *refunds) one(ctx context.Context, charge state.Charge) error {
	seller, sells := rf.platform(charge.Platform).(platform.Seller)
	err := errors.New("nobody can be paid back there now")
	if charge.Platform == "" {
		err = nil // the record has expired
	} else if sells {
		once, cancel := context.WithTimeout(ctx, refundTry)
		err = seller.Refund(once, charge.User, charge.ID)
		cancel()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	to, after := state.Refunded, time.Duration(0)
	if err != nil {
		to, after = state.Refund, min(maxRefund, firstRefund<<min(charge.Tries, 10))
		if wait := (*platform.WaitError)(nil); errors.As(err, &wait) {
			after = max(wait.After, time.Second)
		}
		rf.logger.Warn("a payment could not be refunded", "charge", charge.ID, "error", err, "again_in", after)
	}
	_, err = rf.store.Payments.Settle(ctx, charge, to, after)
	if errors.Is(err, state.ErrNotFound) {
		rf.logger.Error("the record of a payment that has to be refunded is gone", "charge", charge.ID)
		return nil
	}
	if err == nil && to == state.Refunded {
		rf.logger.Info("a payment was refunded", "charge", charge.ID)
	}
	return err
}

// byHand refunds a payment: /refund CHARGE, or /refund as a reply to a message about
// its request.
func (rf *refunds) byHand(ctx context.Context, tn *turn) error {
	id := strings.TrimSpace(tn.rest)
	if id == "" {
		of, err := rf.find.replied(ctx, tn)
		if err != nil {
			return err
		}
		if of != "" {
			rec, err := rf.runner.Load(ctx, of)
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				return err
			}
			id = rec.Charge
		}
	}
	if id == "" {
		return tn.reply(ctx, tn.say("usage_refund", nil))
	}
	charge, err := rf.store.Payments.Charge(ctx, id)
	var now state.ChargeState
	if err == nil {
		now, err = rf.store.Payments.Settle(ctx, charge, state.Refund, 0)
	}
	switch {
	case errors.Is(err, state.ErrNotFound):
		return tn.reply(ctx, tn.say("refund_unknown", nil))
	case err != nil:
		return err
	case now == state.Refunded:
		return tn.reply(ctx, tn.say("refund_done", locale.With{"charge": charge.ID}))
	}
	rf.logger.Info("an operator refunds a payment", "charge", charge.ID)
	return tn.reply(ctx, tn.say("refund_begun", locale.With{"charge": charge.ID, "n": charge.Price, "who": charge.Who}))
}

// support answers /paysupport with whom to write to and, except in groups, where others
// can read it, the user's latest payments.
func (rf *refunds) support(ctx context.Context, tn *turn) error {
	if _, sells := tn.p.(platform.Seller); !sells {
		return tn.reply(ctx, tn.say("pay_elsewhere", nil))
	}
	lines := []string{tn.say("pay_support", locale.With{"contact": rf.contact})}
	if !tn.Chat.Group {
		charges, err := rf.store.Payments.Of(ctx, tn.who(), shownCharges)
		if err != nil {
			return err
		}
		for _, c := range charges {
			line := fmt.Sprintf("%s · %d ⭐ · %s", c.At.UTC().Format("2006-01-02 15:04"), c.Price, c.ID)
			if c.State == state.Refund || c.State == state.Refunded {
				line += " · " + tn.say("pay_returned", nil)
			}
			lines = append(lines, line)
		}
	}
	return tn.reply(ctx, strings.Join(lines, "\n"))
}

// show answers /terms, which bots that take payments must have.
func (cs *consent) show(ctx context.Context, tn *turn) error {
	if cs.terms == nil {
		return tn.reply(ctx, tn.say("unknown_command", nil))
	}
	terms := cs.terms.in(tn.language)
	return tn.replyLong(ctx, terms, linksOf(terms)...)
}
