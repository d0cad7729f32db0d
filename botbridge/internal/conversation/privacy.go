package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// verbForget is the verb of the button that confirms /forget me.
const verbForget = "fg"

// exportedCharges is how many payments are exported: all that are listed.
const exportedCharges = 200

// settingsKind is the kind of the records with users' settings.
const settingsKind = "settings"

// personal is everything that the bridge keeps about a user, as it is stored.
type personal struct {
	Who      string          `json:"who"`
	At       time.Time       `json:"at"`
	Settings json.RawMessage `json:"settings,omitempty"`
	// Terms is the version of the terms that the user has accepted, Share the user's own
	// daily share.
	Terms json.RawMessage `json:"terms,omitempty"`
	Share json.RawMessage `json:"share,omitempty"`
	// Spent is how much of the daily share was used today.
	Spent int64 `json:"spent_today"`
	// SpentIn is the part of it that was used in groups.
	SpentIn map[string]int64 `json:"spent_today_in_groups,omitempty"`
	// Payments are the latest ones.
	Payments []state.Charge `json:"payments,omitempty"`
	// Waiting are offers, orders and questions that wait for the user, and lists whose
	// pages can be turned.
	Waiting    map[string]json.RawMessage `json:"waiting,omitempty"`
	Favourites []state.Star               `json:"favourites,omitempty"`
	// Requests come without their graphs, which are the operator's. LeftOut is how many did
	// not fit into the file.
	Requests []request.Record `json:"requests,omitempty"`
	LeftOut  int              `json:"requests_left_out,omitempty"`
}

// privacy shows users what is kept about them, and forgets it.
type privacy struct {
	store  *state.Store
	guests *guests
	find   *finder
}

// export answers /export: it sends everything that is kept about the user, as a file.
func (pv *privacy) export(ctx context.Context, tn *turn) error {
	if tn.Chat.Group {
		return tn.reply(ctx, tn.say("export_private", nil))
	}
	p, err := pv.collect(ctx, tn.who())
	if err != nil {
		return err
	}
	doc, err := p.fit(tn.p.Limits().File)
	if err != nil {
		return err
	}
	text := tn.say("export_done", locale.With{"n": len(p.Requests)})
	if tn.p.Limits().Linked {
		// There, files are links, and this one is nowhere to link to.
		return tn.replyLong(ctx, text+"\n\n"+string(doc))
	}
	return tn.post(ctx, platform.Post{
		Text: text, ReplyTo: tn.Message.ID, Private: true, Files: []platform.Attachment{{
			Name: "export.json", Media: platform.Document, Size: int64(len(doc)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(doc)), nil },
		}},
	})
}

// fit returns the data as JSON of at most so many bytes, 0 for no limit. It drops the
// oldest requests until the rest fits.
func (p *personal) fit(most int64) ([]byte, error) {
	for {
		doc, err := json.MarshalIndent(p, "", "  ")
		if err != nil || most == 0 || int64(len(doc)) <= most || len(p.Requests) == 0 {
			return doc, err
		}
		half := (len(p.Requests) + 1) / 2
		p.Requests, p.LeftOut = p.Requests[half:], p.LeftOut+half
	}
}

// collect collects what is kept about a user.
func (pv *privacy) collect(ctx context.Context, who string) (*personal, error) {
	p := &personal{Who: who, At: time.Now().UTC()}
	for kind, into := range map[string]*json.RawMessage{settingsKind: &p.Settings, termsKind: &p.Terms, "share": &p.Share} {
		if err := pv.store.Get(ctx, kind, who, into); err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, err
		}
	}
	var err error
	if p.Spent, err = pv.store.Usage.Spent(ctx, who); err != nil {
		return nil, err
	}
	if p.SpentIn, err = pv.store.Usage.SpentIn(ctx, who); err != nil {
		return nil, err
	}
	if p.Waiting, err = pv.store.People.HeldOf(ctx, who); err != nil {
		return nil, err
	}
	if p.Payments, err = pv.store.Payments.Of(ctx, who, exportedCharges); err != nil {
		return nil, err
	}
	if p.Favourites, err = pv.store.People.Stars(ctx, who, ""); err != nil {
		return nil, err
	}
	p.Requests, err = pv.find.requestsOf(ctx, who, p.Favourites)
	for i := range p.Requests {
		p.Requests[i].Graph = nil
	}
	return p, err
}

// forget answers /forget me: it asks for confirmation.
func (pv *privacy) forget(ctx context.Context, tn *turn) error {
	switch {
	case tn.Chat.Group:
		return tn.reply(ctx, tn.say("forget_private", nil))
	case tn.rest != "me":
		return tn.reply(ctx, tn.say("forget_usage", nil))
	}
	return tn.post(ctx, platform.Post{
		Text: tn.say("forget_ask", nil), ReplyTo: tn.Message.ID, Private: true,
		Buttons: tn.buttons(forgetID(tn), verbForget),
	})
}

// forgetID returns the id in the data of the user's button.
func forgetID(tn *turn) string { return request.IDOf("forget/" + tn.who()) }

// pressedForget forgets a user. It may run again. Bans, the user's own share and today's
// usage stay, as otherwise forgetting would be a way around them.
func (pv *privacy) pressedForget(ctx context.Context, tn *turn, id string) error {
	if id != forgetID(tn) {
		tn.answer(ctx, "not_yours")
		return nil
	}
	who := tn.who()
	stars, err := pv.store.People.Stars(ctx, who, "")
	if err != nil {
		return err
	}
	requests, err := pv.find.requestsOf(ctx, who, stars)
	if err != nil {
		return err
	}
	for _, star := range stars {
		if _, err := pv.store.People.Toggle(ctx, who, tn.Key()+"/"+star.ID(), star); err != nil {
			return err
		}
	}
	kept := 0
	for _, rec := range requests {
		gone, err := pv.store.Requests.Forget(ctx, rec.ID)
		if err != nil {
			return err
		}
		if !gone {
			kept++
			continue
		}
		for _, message := range []string{rec.Message, rec.Status} {
			name := request.MessageName(rec.Platform, rec.Chat.ID, message)
			if err := pv.store.Put(ctx, request.MessageKind, name, nil, 0); err != nil {
				return err
			}
		}
	}
	if err := pv.store.People.PartWith(ctx, who, settingsKind, termsKind); err != nil {
		return err
	}
	if err := pv.guests.left(ctx, ChatKey(tn.Platform, tn.Chat)); err != nil {
		return err
	}
	text := tn.say("forget_done", locale.With{"n": len(requests) - kept})
	if kept > 0 {
		text += "\n" + tn.say("forget_running", locale.With{"n": kept})
	}
	text += "\n" + tn.say("forget_rest", nil)
	if charges, err := pv.store.Payments.Of(ctx, who, 1); err != nil {
		return err
	} else if len(charges) > 0 {
		text += "\n" + tn.say("forget_paid", nil)
	}
	tn.answerText(ctx, "")
	return tn.edit(ctx, tn.Message.ID, platform.Post{Text: text})
}
