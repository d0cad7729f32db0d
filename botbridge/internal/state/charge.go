package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	payScript    = script("pay", redis.Durable)
	settleScript = script("settle", redis.Durable)
)

const (
	// chargeKeep is how long a payment is kept, in case somebody asks about it.
	chargeKeep = 180 * 24 * time.Hour
	// maxRefunds bounds how many refunds Refunds returns at a time.
	maxRefunds = 50
)

// ChargeState is the state of a payment.
type ChargeState string

const (
	// Unsettled: its request is not over.
	Unsettled ChargeState = "open"
	// Settled: it was earned.
	Settled ChargeState = "kept"
	// Refund: it has to be refunded.
	Refund ChargeState = "refund"
	// Refunded: it has been refunded.
	Refunded ChargeState = "refunded"
)

// Charge is a payment. Older and newer bridges read its JSON.
type Charge struct {
	ID       string `json:"id"`
	Platform string `json:"platform"`
	// Who is the user with the platform, User without it.
	Who  string `json:"who"`
	User string `json:"user"`
	// Request is the request that was paid for, "" for none.
	Request string    `json:"request,omitempty"`
	Price   int64     `json:"price"`
	At      time.Time `json:"at"`

	// State and Tries, the failed attempts to refund it, are stored separately.
	State ChargeState `json:"state,omitempty"`
	Tries int         `json:"tries,omitempty"`
}

// Paying says what a payment that was made is for.
type Paying string

const (
	// PaysRequest: its request is stored now.
	PaysRequest Paying = "ok"
	// PaysKnown: it was recorded before.
	PaysKnown Paying = "exists"
	// PaysNothing: it has to be refunded.
	PaysNothing Paying = "refund"
)

// Pay records a payment for 180 days, once. In the same step it stores the request that was
// paid for, and forgets its order. If there is no request to store, or it exists already,
// the payment has to be refunded.
func (s *Payments) Pay(ctx context.Context, c Charge, order string, record any) (Paying, error) {
	c.State, c.Tries = "", 0
	doc, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	what, id := []byte{}, ""
	if record != nil {
		id = c.Request
		if what, err = json.Marshal(record); err != nil {
			return "", err
		}
	}
	reply, err := s.run(ctx, payScript, s.term.load(), c.ID, doc, c.Who, chargeKeep.Milliseconds(), c.Price, day(time.Now()), order, id, what)
	if err != nil {
		return "", err
	}
	return Paying(reply[0]), nil
}

// Settle changes the state of a payment, and returns the state that it is in now: one that
// has to be refunded cannot be settled any more, and one that has been refunded stays so. A
// Refund is due after a while. ErrNotFound means that the payment is unknown.
func (s *Payments) Settle(ctx context.Context, c Charge, to ChargeState, after time.Duration) (ChargeState, error) {
	reply, err := s.run(ctx, settleScript, s.term.load(), c.ID, string(to), after.Milliseconds(), day(time.Now()), c.Price)
	if err != nil {
		return "", err
	}
	return ChargeState(reply[1]), nil
}

// Charge reads a payment; ErrNotFound if it is unknown.
func (s *Payments) Charge(ctx context.Context, id string) (c Charge, err error) {
	values, err := s.db.Client().HMGet(ctx, s.db.Key("charge", id), "doc", "state", "tries").Result()
	if err != nil {
		return c, fmt.Errorf("reading a payment: %w", err)
	}
	doc, _ := values[0].(string)
	was, _ := values[1].(string)
	tries, _ := values[2].(string)
	if doc == "" {
		return c, ErrNotFound
	}
	err = json.Unmarshal([]byte(doc), &c)
	c.State, c.Tries = ChargeState(was), int(number(tries))
	return c, err
}

// Refunds returns the payments whose refund is due.
func (s *Payments) Refunds(ctx context.Context, now time.Time) (list []Charge, err error) {
	ids, err := s.db.Client().ZRangeByScore(ctx, s.db.Key("refunds"), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: maxRefunds,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("listing refunds: %w", err)
	}
	for _, id := range ids {
		c, err := s.Charge(ctx, id)
		if errors.Is(err, ErrNotFound) {
			c, err = Charge{ID: id}, nil // its record has expired; Settle says so, and drops it
		}
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// Of returns a user's last payments, at most n, the newest first.
func (s *Payments) Of(ctx context.Context, who string, n int64) (list []Charge, err error) {
	ids, err := s.db.Client().ZRevRange(ctx, s.db.Key("charges", who), 0, n-1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing payments: %w", err)
	}
	for _, id := range ids {
		c, err := s.Charge(ctx, id)
		switch {
		case err == nil:
			list = append(list, c)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return list, nil
}
