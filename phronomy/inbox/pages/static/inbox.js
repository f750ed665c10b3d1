// What the pages do beyond their links and forms. Without this file each step is a page of its own, and nothing is missing.
// Nothing here decides: a key opens a choice, and only a form that somebody sends does.
"use strict";

(() => {
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("phronomy", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const $ = (query, within = document) => within.querySelector(query);
  const $$ = (query, within = document) => [...within.querySelectorAll(query)];
  const main = () => $("#main");
  const page = () => main().dataset.page || "";

  // A page of our own server, which has escaped all that came from outside. No script in it runs, and nothing in it loads.
  const parsed = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");

  const say = (text) => {
    const live = $("#live");
    if (live.textContent !== text) live.textContent = text;
  };

  // Times: the server's clock counts, and the zone of whoever reads.

  const ahead = Number(document.documentElement.dataset.now) * 1000 - Date.now();
  const now = () => Date.now() + ahead;

  const duration = (seconds) => {
    for (const [name, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
      if (seconds >= length) {
        const count = Math.floor(seconds / length);
        return `${count} ${name}${count > 1 ? "s" : ""}`;
      }
    }
    return "";
  };

  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "long", timeStyle: "short" });

  const writeTimes = () => {
    for (const time of $$("time")) {
      const at = new Date(time.dateTime);
      if ("clock" in time.dataset) time.textContent = clock.format(at);
      else if ("day" in time.dataset) time.textContent = day.format(at);
      else if ("relative" in time.dataset) {
        const seconds = (now() - at) / 1000;
        const future = time.dataset.relative === "ahead" || seconds < -60;
        if (future) time.dataset.relative = "ahead";
        const told = duration(Math.abs(seconds));
        if (future) time.textContent = seconds >= 0 ? "time is over" : `in ${told || "less than a minute"}`;
        else time.textContent = told ? `${told} ago` : "just now";
      }
    }
  };

  const writeSkew = () => {
    const off = Math.abs(ahead) / 1000;
    if (off <= 30) return;
    const told = duration(off) || `${Math.round(off)} seconds`;
    $("#skew").textContent = `The clock of this device is ${told} ${ahead > 0 ? "behind" : "ahead of"} the server’s. The server’s counts.`;
    $("#skew").hidden = false;
  };

  // Being offline: nothing is sent, nothing is queued, and what was typed stays.

  const writeOnline = () => {
    const off = !navigator.onLine;
    $("#offline").hidden = !off;
    for (const button of $$("form[method=post] button")) {
      if (off) {
        button.setAttribute("aria-disabled", "true");
        button.setAttribute("aria-describedby", "offline");
      } else if (!button.closest("[data-sending]") && !button.closest(".covered")) {
        button.removeAttribute("aria-disabled");
        button.removeAttribute("aria-describedby");
      }
    }
  };

  // Sending a decision: again under the same key for half a minute, since the answer may have been lost and not the decision.

  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  const tell = (form, title, text, link) => {
    let box = $(".sent", form);
    if (!box) {
      box = document.createElement("div");
      box.className = "notice bad sent";
      box.setAttribute("role", "alert");
      form.prepend(box);
    }
    const head = document.createElement("p");
    const strong = document.createElement("strong");
    strong.textContent = title;
    head.append(strong, " ", text, " ");
    if (link) {
      const a = document.createElement("a");
      a.href = link.href;
      a.textContent = link.text;
      head.append(a);
    }
    box.replaceChildren(head);
  };

  const sent = async (action, body) => {
    const until = Date.now() + 30000;
    for (let wait = 1000; ; wait = Math.min(wait * 2, 8000)) {
      try {
        const answer = await fetch(action, { method: "POST", body, headers: { Accept: "text/html" }, signal: AbortSignal.timeout(20000) });
        return { answer, text: await answer.text() };
      } catch (error) {
        if (Date.now() + wait > until) throw error;
        say("The server did not answer. Trying again.");
        await pause(wait);
      }
    }
  };

  const send = async (form, submitter) => {
    if (form.hasAttribute("data-sending") || form.closest(".covered")) return;
    if (!navigator.onLine) {
      say("You are offline. Nothing was sent.");
      return;
    }
    const action = (submitter && submitter.getAttribute("formaction")) || form.getAttribute("action");
    const body = new URLSearchParams(new FormData(form, submitter));
    form.setAttribute("data-sending", "");
    const buttons = $$("button", form);
    buttons.forEach((button) => button.setAttribute("aria-disabled", "true"));
    const slow = setTimeout(() => say("Sending."), 400);
    try {
      const { answer, text } = await sent(action, body);
      if (answer.redirected && answer.ok && page() === "chat") {
        show(parsed(text));
        return;
      }
      if (answer.redirected && answer.ok) {
        location.assign(`${answer.url}#result`);
        if (answer.url === location.href.split("#")[0]) {
          scrollTo(0, 0); // a page that is loaded again stands where it stood, and the outcome is at its top
          location.reload();
        }
        return;
      }
      const found = parsed(text);
      if (![200, 404, 409, 422].includes(answer.status)) {
        const title = ($("h1", found) || {}).textContent || "This was not sent.";
        const lead = ($("main .lead", found) || {}).textContent || "";
        const link = answer.status === 401 ? { href: signIn(), text: "Sign in and come back here" } : null;
        tell(form, `${title}.`, `${lead} What you typed stays here.`, link);
        return;
      }
      show(found);
    } catch {
      tell(form, "We do not know yet whether this was recorded.", "The server did not answer for half a minute. What you typed stays here.", { href: location.pathname + location.search, text: "Look again" });
      say("We do not know yet whether this was recorded.");
    } finally {
      clearTimeout(slow);
      form.removeAttribute("data-sending");
      buttons.forEach((button) => button.removeAttribute("aria-disabled"));
      writeOnline();
    }
  };

  const signIn = () => {
    const home = $(".brand").getAttribute("href");
    const prefix = home.replace(/\/$/, "");
    const here = location.pathname.slice(prefix.length) + location.search;
    return `${prefix}/login?to=${encodeURIComponent(here)}`;
  };

  const show = (found) => {
    const fresh = $("#main", found);
    if (!fresh) {
      location.reload();
      return;
    }
    document.title = found.title;
    main().replaceWith(document.adoptNode(fresh));
    begin();
    scrollTo(0, 0);
    focusFirst();
  };

  const focusFirst = () => {
    if (page() === "chat") {
      scrollTo(0, document.body.scrollHeight);
      const words = $("#words");
      if (words && matchMedia("(hover: hover)").matches) words.focus();
      return;
    }
    const target = $("#summary") || (location.hash === "#result" || page() === "lost" || page() === "done" ? $("#result") : null);
    if (target) target.focus();
    else if (page() === "review") {
      const heading = $("h1");
      heading.tabIndex = -1;
      heading.focus();
    }
  };

  // Following a request: every two seconds while it is on its way, every five while it waits, never in a hidden tab.

  let looks = 0;
  let timer = 0;

  // A page of ours leads elsewhere only if nobody is signed in any more.
  const looked = async (href) => {
    const answer = await fetch(href, { headers: { Accept: "text/html" }, redirect: "manual" });
    const banner = $("#signed-out");
    banner.hidden = answer.type !== "opaqueredirect";
    $("a", banner).href = signIn();
    return answer;
  };

  const follow = () => {
    clearTimeout(timer);
    const state = $("#state");
    if (!state || !["request", "lost"].includes(page())) return;
    const waits = ["pending", "partly_voted", "voted", "may_not"].includes(state.dataset.state);
    if (!waits && !("follows" in state.dataset)) return;
    looks += 1;
    timer = setTimeout(look, waits && hears ? 60000 : waits || looks > 300 ? 5000 : 2000);
  };

  const look = async () => {
    const state = $("#state");
    if (!state || !state.dataset.look || document.hidden || !navigator.onLine) return;
    try {
      const answer = await looked(state.dataset.look);
      if (answer.ok) moved(state, $("#state", parsed(await answer.text())));
      else if (answer.status === 404) {
        say("This does not wait any more.");
        cover();
        return;
      }
    } catch {
      // The next look tells more.
    }
    follow();
  };

  const moved = (state, fresh) => {
    if (!fresh) return;
    const same = ["state", "digest", "votes"].every((name) => state.dataset[name] === fresh.dataset[name]);
    if (same) return;
    const inside = state.contains(document.activeElement);
    const changed = state.dataset.digest !== fresh.dataset.digest;
    const still = ["pending", "partly_voted"].includes(fresh.dataset.state);
    state.replaceWith(document.adoptNode(fresh));
    begin();
    const heading = $("#result");
    if (heading) say(heading.textContent);
    if (heading && inside) heading.focus();
    if (changed || !still) cover();
  };

  // Nobody decides on what they have not read: the buttons are covered, and what was typed stays.
  const cover = () => {
    if (!$("#choices")) return;
    $("#moved").hidden = false;
    $("#choices").classList.add("covered");
    $$("#choices button").forEach((button) => button.setAttribute("aria-disabled", "true"));
  };

  // The list: nothing moves while somebody reads. New ones are counted in a bar, and decided ones keep their place.

  let listTimer = 0;

  const watchList = () => {
    clearTimeout(listTimer);
    if (page() === "waiting") listTimer = setTimeout(lookAtList, hears ? 120000 : 15000);
  };

  const lookAtList = async () => {
    if (!document.hidden && navigator.onLine) {
      try {
        const answer = await looked(location.href);
        if (answer.ok) compareList(parsed(await answer.text()));
      } catch {
        // The next look tells more.
      }
    }
    watchList();
  };

  const compareList = (found) => {
    const fresh = $("#main", found);
    if (!fresh) return;
    const ids = new Set($$(".row", fresh).map((row) => row.dataset.id));
    const rows = $$(".row", main());
    const more = $("a[rel=next]", fresh) !== null;
    let gone = 0;
    rows.forEach((row, place) => {
      // On a full page a row may have moved to the next one, but only the last ones can have.
      if (ids.has(row.dataset.id) || (more && place >= ids.size)) return;
      gone += 1;
      if (row.classList.contains("gone")) return;
      row.classList.add("gone");
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = "waits no more";
      $(".facts", row).prepend(badge);
      const tick = $("input", row);
      if (tick) {
        tick.checked = false;
        tick.disabled = true;
      }
    });
    const count = Number(fresh.dataset.count) - (Number(main().dataset.count) - gone);
    const bar = $("#fresh");
    if (count <= 0) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${count} new: show ${count === 1 ? "it" : "them"}`;
    button.addEventListener("click", () => location.reload());
    if (bar.textContent !== button.textContent) bar.replaceChildren(button);
    bar.hidden = false;
  };

  // A chat: what is new is put in at its end, and read out. Who has scrolled up stays there.

  let talkTimer = 0;

  const followTalk = () => {
    clearTimeout(talkTimer);
    const talk = $("#talk");
    if (talk) talkTimer = setTimeout(lookAtTalk, "follows" in talk.dataset ? 1000 : hears ? 60000 : 5000);
  };

  const lookAtTalk = async () => {
    const talk = $("#talk");
    if (!talk || document.hidden || !navigator.onLine) return;
    try {
      const answer = await looked(talk.dataset.look);
      if (answer.ok) heardTalk(talk, $("#talk", parsed(await answer.text())));
    } catch {
      // The next look tells more.
    }
    followTalk();
  };

  const heardTalk = (talk, fresh) => {
    if (!fresh || fresh.dataset.digest === talk.dataset.digest) return;
    const atEnd = innerHeight + scrollY > document.body.scrollHeight - 200;
    const lines = $$("li", talk).length;
    talk.replaceWith(document.adoptNode(fresh));
    begin();
    say($$("li.theirs, li.ask", $("#talk")).slice(-1).map((line) => line.textContent).join(""));
    if (atEnd && $$("li", $("#talk")).length !== lines) scrollTo(0, document.body.scrollHeight);
  };

  // The stream of events says only "look again". One tab has it for all tabs of the browser, and none while it is hidden.

  let hears = false;
  let soon = 0;
  let leaving = null;

  // Many events are one look: where much happens, the pages look once a second and no more.
  const told = new Set();

  const heard = (id) => {
    told.add(id || "all");
    if (soon) return;
    soon = setTimeout(() => {
      soon = 0;
      const state = $("#state");
      if (page() === "waiting") lookAtList();
      if (page() === "chat") lookAtTalk();
      if (state && state.dataset.look && [...told].some((each) => each === "all" || state.dataset.look.includes(`/${each}/`))) look();
      told.clear();
    }, 1000);
  };

  const events = document.documentElement.dataset.events;
  const channel = events && "BroadcastChannel" in window ? new BroadcastChannel(`phronomy ${events}`) : null;

  const listen = () => {
    if (!channel || !navigator.locks || leaving || document.hidden) return;
    const mine = new AbortController();
    leaving = mine;
    navigator.locks
      .request(`phronomy ${events}`, { signal: mine.signal }, () => new Promise((done) => {
        const stream = new EventSource(events);
        const pass = (id) => {
          heard(id);
          channel.postMessage(id);
        };
        stream.onopen = () => { hears = true; };
        stream.onmessage = (event) => pass(JSON.parse(event.data).id);
        stream.addEventListener("reset", () => pass(null));
        stream.onerror = () => {
          hears = false;
          follow();
          watchList();
          // A browser gives up for good on any answer but 200; so it is asked again, in a minute.
          if (stream.readyState === EventSource.CLOSED) setTimeout(end, 60000);
        };
        const end = () => {
          stream.close();
          hears = false;
          done();
          if (leaving === mine) leaving = null;
          if (!mine.signal.aborted) listen();
        };
        mine.signal.addEventListener("abort", end);
      }))
      .catch(() => {
        // It was hidden before its turn came.
      });
  };

  const leave = () => {
    const mine = leaving;
    leaving = null;
    if (mine) mine.abort();
  };

  if (channel) channel.onmessage = (event) => heard(event.data);

  // Keys: they move, and open. They are dead in fields, while a key is held down, and where somebody has switched them off.

  const keysOn = () => localStorage.getItem("phronomy-keys") !== "off";
  const ways = { a: "approve", r: "reject", e: "edit", d: "respond" };

  const step = (by) => {
    const links = $$(".row h2 a");
    if (!links.length) return;
    const here = links.findIndex((link) => link.closest(".row").classList.contains("here"));
    const next = links[Math.max(0, Math.min(links.length - 1, here < 0 ? 0 : here + by))];
    $$(".row.here").forEach((row) => row.classList.remove("here"));
    next.closest(".row").classList.add("here");
    next.focus();
  };

  const open = (way) => {
    const choice = $(`[data-way="${way}"]`);
    if (!choice || choice.closest(".covered")) return false;
    choice.open = true;
    const field = $("form .field :is(input, textarea, select)", choice) || $("form button", choice);
    if (field) field.focus();
    return true;
  };

  const goTo = (href) => {
    if (href) location.assign(href);
    return Boolean(href);
  };

  const pressed = (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const target = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = target.closest("form[data-send]");
      if (form && !event.repeat) {
        event.preventDefault();
        form.requestSubmit();
      }
      return;
    }
    if (event.key === "Enter" && !event.shiftKey && !event.repeat && "words" in target.dataset && matchMedia("(hover: hover)").matches) {
      event.preventDefault();
      target.form.requestSubmit();
      return;
    }
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || !keysOn()) return;
    if (target.closest("input, textarea, select, [contenteditable]")) return;
    const inRow = target.closest(".row") !== null; // elsewhere the arrows scroll
    let done = false;
    if (event.key === "?") done = goTo(document.documentElement.dataset.help);
    else if (event.key === "u") done = goTo(main().dataset.back);
    else if (event.key === "n") done = goTo(($("#next") || {}).href);
    else if (page() === "waiting" && (event.key === "j" || (inRow && event.key === "ArrowDown"))) { step(1); done = true; }
    else if (page() === "waiting" && (event.key === "k" || (inRow && event.key === "ArrowUp"))) { step(-1); done = true; }
    else if (page() === "waiting" && event.key === "/") {
      const search = $("#text");
      search.closest("details").open = true;
      search.focus();
      done = true;
    } else if (event.key in ways) done = open(ways[event.key]);
    if (done) event.preventDefault();
  };

  // The picture of a run's versions begins with the oldest one, and what somebody looks for is where the run stands.
  const showHere = () => {
    const tree = $(".tree");
    const here = tree && $(".here", tree);
    if (!here) return;
    const box = here.getBBox();
    tree.scrollTop = box.y - (tree.clientHeight - box.height) / 2;
    tree.scrollLeft = box.x - (tree.clientWidth - box.width) / 2;
  };

  // What each page gets when it is there

  const begin = () => {
    for (const button of $$(".copy[hidden]")) {
      if (navigator.clipboard) button.hidden = false;
    }
    writeTimes();
    writeOnline();
    follow();
    followTalk();
    watchList();
    const enter = $("#enter");
    if (enter) enter.hidden = !matchMedia("(hover: hover)").matches;
    const keys = $("#keys-on");
    if (keys) {
      $("#keys-switch").hidden = false;
      keys.checked = keysOn();
    }
    const note = $("#keys-note"); // whoever is not signed in has no use for the keys
    if (note) note.hidden = !keysOn();
  };

  document.addEventListener("click", async (event) => {
    const opener = event.target.closest("a[data-open]");
    if (opener) {
      event.preventDefault();
      open(opener.dataset.open);
    }
    const button = event.target.closest("button");
    if (!button) return;
    if (button.getAttribute("aria-disabled") === "true") {
      event.preventDefault();
      return;
    }
    if (!button.classList.contains("copy")) return;
    let value = button.dataset.copy;
    if (value.startsWith('"')) value = JSON.parse(value);
    try {
      await navigator.clipboard.writeText(value);
      say("Copied.");
    } catch {
      say("This could not be copied. Select it instead.");
    }
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-send]")) {
      if (form.method === "post" && !navigator.onLine) event.preventDefault();
      return;
    }
    event.preventDefault();
    send(form, event.submitter);
  });

  // Somebody who writes a value does not want none.
  document.addEventListener("input", (event) => {
    const field = event.target.closest(".field");
    const none = field && $('input[type="checkbox"][name^="n"]', field);
    if (none && event.target !== none && event.target.value !== "") none.checked = false;
  });

  document.addEventListener("change", (event) => {
    if (event.target.id !== "keys-on") return;
    localStorage.setItem("phronomy-keys", event.target.checked ? "on" : "off");
    begin();
  });

  document.addEventListener("keydown", pressed);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) leave();
    else {
      listen();
      looks = 0;
      if ($("#state")) look();
      if (page() === "chat") lookAtTalk();
      if (page() === "waiting") lookAtList();
    }
  });
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);
  addEventListener("online", writeOnline);
  addEventListener("offline", writeOnline);

  begin();
  showHere();
  writeSkew();
  // A browser that goes to a place in a page moves the focus there, or nowhere, once all is loaded.
  addEventListener("load", () => {
    focusFirst();
    setTimeout(focusFirst, 0);
  });
  setInterval(writeTimes, 30000);
})();
