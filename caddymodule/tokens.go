package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/machines"
)

// machineToken is an entry of GET /comfyhub/tokens.
type machineToken struct {
	Machine string `json:"machine"`
	// Issued is in Unix seconds.
	Issued int64 `json:"issued"`
}

func serveTokens(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	list, err := h.Machines.List(r.Context())
	if err != nil {
		return unavailable(err)
	}
	all := make([]machineToken, len(list))
	for n, m := range list {
		all[n] = machineToken{m.Name, m.Issued.Unix()}
	}
	return answer(w, all)
}

func serveIssueToken(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	token, err := h.Operator.IssueToken(r.Context(), r.URL.Query().Get("machine"))
	switch {
	case errors.Is(err, fleet.ErrName):
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: fmt.Errorf("machine: %w", err)}
	case errors.Is(err, machines.ErrFull):
		return caddy.APIError{HTTPStatus: http.StatusInsufficientStorage, Err: err}
	case err != nil:
		return unavailable(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, map[string]any{"token": token})
}

func serveRevokeToken(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("machine")
	had, err := h.Operator.RevokeToken(r.Context(), name)
	switch {
	case err != nil:
		return unavailable(err)
	case !had:
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no machine %q has a token", name)}
	}
	return answer(w, map[string]any{"machine": name})
}

// aboutTokens is the help of the commands.
const aboutTokens = `A machine with a token runs "agent pull": it opens a tunnel to the hub's site,
and the hub uses its ComfyUI servers through it. add prints a new token of the
machine NAME, and an older one is not valid any more; revoke takes it away and
cuts its tunnels within half a minute; list shows which machines have one.

The command talks to the admin endpoint of the running hub.`

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name: "comfyhub-token", Usage: "add|revoke NAME | list", Short: "Lets GPU machines that only dial out join the fleet", Long: aboutTokens,
		CobraFunc: addTokenCommands,
	})
}

// addTokenCommands adds the commands to a parent.
func addTokenCommands(cmd *cobra.Command) {
	cmd.PersistentFlags().StringP("address", "a", caddy.DefaultAdminListen, "Address of the admin endpoint")
	command := func(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, address, machine string) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: args, SilenceUsage: true,
			RunE: func(sub *cobra.Command, args []string) error {
				address, err := cmd.PersistentFlags().GetString("address")
				if err != nil {
					return err
				}
				machine := ""
				if len(args) > 0 {
					machine = args[0]
				}
				return run(sub, address, machine)
			},
		})
	}
	command("add NAME", "Print a new token of a machine", cobra.ExactArgs(1), addToken)
	command("revoke NAME", "Take the token of a machine away", cobra.ExactArgs(1), revokeToken)
	command("list", "Show which machines have a token", cobra.NoArgs, listTokens)
}

// askAdmin sends a request about tokens to the admin endpoint and reads the answer.
func askAdmin(address, method, machine string, v any) error {
	path := "/comfyhub/tokens"
	if machine != "" {
		path += "?machine=" + url.QueryEscape(machine)
	}
	resp, err := caddycmd.AdminAPIRequest(address, method, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, 8<<20)).Decode(v)
}

func addToken(cmd *cobra.Command, address, machine string) error {
	var issued struct{ Token string }
	if err := askAdmin(address, http.MethodPost, machine, &issued); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), issued.Token)
	return nil
}

func revokeToken(cmd *cobra.Command, address, machine string) error {
	var revoked struct{ Machine string }
	if err := askAdmin(address, http.MethodDelete, machine, &revoked); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), revoked.Machine, "has no token any more")
	return nil
}

func listTokens(cmd *cobra.Command, address, _ string) error {
	var all []machineToken
	if err := askAdmin(address, http.MethodGet, "", &all); err != nil {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tISSUED")
	for _, m := range all {
		fmt.Fprintf(table, "%s\t%s\n", m.Machine, time.Unix(m.Issued, 0).Format(time.DateTime))
	}
	return table.Flush()
}
