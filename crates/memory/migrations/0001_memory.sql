-- What hone remembers. A tenant is a role of the database: each sees its own rows only. Whoever owns the tables administers
-- them, and is kept to his own rows by hone's statements alone.
--
-- Under row-level security, only operators that leak nothing use an index. What needs others is in functions that run as the
-- owner and look at the rows of the role that is logged in.

CREATE TABLE hone.heads (
    tenant name NOT NULL DEFAULT current_user PRIMARY KEY,
    head jsonb NOT NULL,
    -- The words of all engrams, of which their mean length follows.
    n_texts bigint NOT NULL DEFAULT 0,
    n_words bigint NOT NULL DEFAULT 0,
    -- Where the tenant's processes hear of events: nobody else knows the name.
    channel text NOT NULL DEFAULT 'hone_' || replace(gen_random_uuid()::text, '-', '')
);

CREATE TABLE hone.engrams (
    tenant name NOT NULL DEFAULT current_user,
    id uuid NOT NULL,
    sequence bigint NOT NULL GENERATED ALWAYS AS ((fields ->> 'sequence')::bigint) STORED,
    fields jsonb NOT NULL,
    words tsvector,
    n_words bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX engrams_by_sequence ON hone.engrams (tenant, sequence);
CREATE INDEX engrams_by_words ON hone.engrams USING gin (words);
CREATE INDEX engrams_from_others ON hone.engrams (tenant) WHERE jsonb_exists(fields, 'sources');

-- How many texts have each of these words.
CREATE FUNCTION hone.texts_with(asked text[]) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT (SELECT count(*) FROM hone.engrams
                         WHERE tenant = session_user AND words @@ one.word::tsquery)
                 FROM unnest(asked) WITH ORDINALITY AS one(word, place) ORDER BY one.place)
$$;

-- The texts that have most of these words, each weighted by its rarity.
CREATE FUNCTION hone.texts_like(asked text[], rarity real[], n integer)
RETURNS TABLE (sequence bigint, fields jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT engrams.sequence, engrams.fields
    FROM hone.engrams, LATERAL (SELECT sum(one.rarity) AS rarity FROM unnest(asked, rarity) AS one(word, rarity)
                                WHERE engrams.words @@ one.word::tsquery) AS matched
    WHERE tenant = session_user AND engrams.words @@ array_to_string(asked, ' | ')::tsquery
    ORDER BY matched.rarity DESC, engrams.sequence DESC LIMIT n
$$;

CREATE TABLE hone.vectors (
    tenant name NOT NULL DEFAULT current_user,
    id uuid NOT NULL,
    sequence bigint NOT NULL,
    model text NOT NULL,
    "values" real[] NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX vectors_by_model ON hone.vectors (tenant, model);

-- Vectors that were added, replaced or removed, for processes with an index of their own.
CREATE TABLE hone.changes (
    tenant name NOT NULL DEFAULT current_user,
    number bigint NOT NULL,
    sequence bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (tenant, number)
);

-- The dimensions of the vectors of each embedding model.
CREATE TABLE hone.models (
    tenant name NOT NULL DEFAULT current_user,
    model text NOT NULL,
    dimensions jsonb NOT NULL,
    PRIMARY KEY (tenant, model)
);

CREATE TABLE hone.events (
    tenant name NOT NULL DEFAULT current_user,
    number bigint NOT NULL,
    id text GENERATED ALWAYS AS (event ->> 'id') STORED,
    event jsonb NOT NULL,
    PRIMARY KEY (tenant, number)
);
CREATE UNIQUE INDEX events_by_id ON hone.events (tenant, id);

-- The ids of the answers that an event, or a part of it, is about.
CREATE FUNCTION hone.answers_in(event jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT DISTINCT found #>> '{}'
                 FROM unnest(ARRAY['strict $.**.query_id', 'strict $.**.query_id_a', 'strict $.**.query_id_b',
                                   'strict $.**.correlation_id']::jsonpath[]) AS path,
                      jsonb_path_query(event, path) AS found)
$$;
CREATE INDEX events_by_answer ON hone.events USING gin (hone.answers_in(event));

CREATE FUNCTION hone.events_about(ids text[]) RETURNS TABLE (number bigint, event jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT events.number, events.event FROM hone.events
    WHERE tenant = session_user AND hone.answers_in(events.event) && ids
$$;

-- What is due of engrams, by their sequence numbers, and who works on it.
CREATE TABLE hone.due (
    tenant name NOT NULL DEFAULT current_user,
    sequence bigint NOT NULL,
    filed jsonb NOT NULL,
    PRIMARY KEY (tenant, sequence)
);

CREATE TABLE hone.leases (
    tenant name NOT NULL DEFAULT current_user,
    holder uuid NOT NULL,
    term jsonb NOT NULL,
    PRIMARY KEY (tenant, holder)
);

CREATE TABLE hone.critiques (
    tenant name NOT NULL DEFAULT current_user,
    number bigint NOT NULL,
    critique jsonb NOT NULL,
    PRIMARY KEY (tenant, number)
);

CREATE TABLE hone.settings (
    tenant name NOT NULL DEFAULT current_user,
    name text NOT NULL,
    value jsonb NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Conversations and whatever else is kept beside engrams, by path; and when each was written, apart from the contents, so
-- that a list reads little.
CREATE TABLE hone.documents (
    tenant name NOT NULL DEFAULT current_user,
    name text COLLATE "C" NOT NULL,
    content jsonb NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE hone.document_times (
    tenant name NOT NULL DEFAULT current_user,
    name text COLLATE "C" NOT NULL,
    written jsonb NOT NULL,
    PRIMARY KEY (tenant, name)
);

DO $$
DECLARE
    place text;
BEGIN
    FOREACH place IN ARRAY ARRAY['heads', 'engrams', 'vectors', 'changes', 'models', 'events', 'due', 'leases',
                                 'critiques', 'settings', 'documents', 'document_times']
    LOOP
        EXECUTE format('ALTER TABLE hone.%I ENABLE ROW LEVEL SECURITY', place);
        EXECUTE format('CREATE POLICY own_rows ON hone.%I USING (tenant = current_user) '
                       'WITH CHECK (tenant = current_user)', place);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON hone.%I TO PUBLIC', place);
    END LOOP;
END
$$;
GRANT USAGE ON SCHEMA hone TO PUBLIC;
GRANT SELECT ON hone.migrations TO PUBLIC;
