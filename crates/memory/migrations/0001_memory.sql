-- What hone remembers. A tenant is a role of the database: each sees its own rows only, whoever owns the tables.

CREATE TABLE hone.heads (
    tenant name NOT NULL DEFAULT current_user PRIMARY KEY,
    head jsonb NOT NULL,
    -- The words of all engrams, of which their mean length follows.
    n_texts bigint NOT NULL DEFAULT 0,
    n_words bigint NOT NULL DEFAULT 0
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
        EXECUTE format('ALTER TABLE hone.%I FORCE ROW LEVEL SECURITY', place);
        EXECUTE format('CREATE POLICY own_rows ON hone.%I USING (tenant = current_user) '
                       'WITH CHECK (tenant = current_user)', place);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON hone.%I TO PUBLIC', place);
    END LOOP;
END
$$;
GRANT USAGE ON SCHEMA hone TO PUBLIC;
GRANT SELECT ON hone.migrations TO PUBLIC;
